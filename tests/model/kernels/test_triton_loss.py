"""Triton's kernel of the loss, on its interpreter, against float64 cross-entropy of torch."""

from itertools import product
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import library
from torch.testing import assert_close

pytest.importorskip("triton", reason="Triton is not installed")
from model.kernels.interpreted import interpreted
from nmtdeep.model.kernels import triton_loss
from nmtdeep.training import loss as training_loss

PAD = 2
BLOCK = triton_loss.PIECES.value * triton_loss.PIECE.value
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def _interpreted():
    language = triton_loss.tl
    functions = [(triton_loss, "_losses"), *((language, name) for name in ("max", "sum", "zeros"))]
    with interpreted(*functions):
        yield


def expected(logits, targets, smoothing):
    """Loss and nll of each position, and the gradient of the first.

    torch spreads its smoothing e over all types, the target too: e = eps V / (V - 1).
    """
    x = logits.double().requires_grad_()
    share = smoothing * logits.shape[1] / (logits.shape[1] - 1)
    given = {"ignore_index": PAD, "reduction": "none"}
    loss = F.cross_entropy(x, targets, label_smoothing=share, **given)
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    return loss.detach(), F.cross_entropy(x, targets, **given).detach(), gradient


def drawn(types, scale, dtype=torch.float32):
    """Six rows; the targets are the ends of rows and of blocks, and two of padding."""
    generator = torch.Generator().manual_seed(types)
    logits = torch.randn(6, types, generator=generator) * scale
    ends = 0, types - 1, min(BLOCK - 1, types // 2), min(BLOCK, types - 2)
    return logits.to(dtype), torch.tensor([*ends[:2], PAD, *ends[2:], PAD])


@pytest.mark.parametrize(
    ("types", "scale", "offset", "smoothing"),
    [
        *product((7, BLOCK, BLOCK + 3, 3 * BLOCK + 40), [3.0], [0.0], (0.0, 0.1)),
        *product([BLOCK + 3], [30.0], (80.0, -80.0, 1e4), [0.1]),
    ],
)
def test_losses_and_gradient(types, scale, offset, smoothing):
    logits, targets = drawn(types, scale)
    logits += offset
    loss, nll, gradient = expected(logits, targets, smoothing)
    logits[targets == PAD] = float("nan")  # not read
    found = triton_loss.losses(logits, targets, smoothing, PAD)
    assert_close(found.double(), torch.stack((loss, nll)), **CLOSE)
    assert_close(logits.double(), gradient, **CLOSE)
    assert not found[:, targets == PAD].any() and not logits[targets == PAD].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_once(dtype):
    """The gradient only; the interpreter cuts bf16 off."""
    logits, targets = drawn(BLOCK + 8, 3.0, dtype)
    loss, nll, gradient = expected(logits, targets, 0.1)
    found = triton_loss.losses(logits, targets, 0.1, PAD)
    assert_close(found.double(), torch.stack((loss, nll)), **CLOSE)
    assert logits.dtype == dtype
    assert_close(logits.double(), gradient, rtol=torch.finfo(dtype).eps, atol=2**-24)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_logits_that_overflowed_give_no_number():
    """So that a step in fp16 is skipped."""
    logits, targets = drawn(1000, 3.0)
    logits[0, 5] = float("inf")
    assert triton_loss.losses(logits, targets, 0.1, PAD)[0, 0].isnan() and logits[0, 5].isnan()


@pytest.mark.parametrize("chosen", [True, False])
def test_training_takes_the_kernel_where_it_may(chosen):
    logits, targets = drawn(1000, 3.0)
    loss, nll, gradient = expected(logits, targets, 0.1)
    how = training_loss.LossOptions(0.1, PAD, logits.dtype, chunk=6, rows=6, compiles=False)
    with mock.patch.object(training_loss, "takes_triton", lambda _: chosen):
        *sums, out = training_loss._on_gpu(logits, targets, how)
        _, _, apart = training_loss._on_gpu(logits.clone(), targets, how._replace(alpha=1.0))
    assert_close(torch.stack(sums).double(), torch.stack((loss.sum(), nll.sum())), **CLOSE)
    assert_close(out.double(), gradient, **CLOSE)
    assert (out is logits) == chosen  # in place
    assert apart.isfinite().all()


def test_the_operator_passes_torchs_checks():
    logits, targets = drawn(40, 3.0)
    checks = ("test_schema", "test_faketensor")
    library.opcheck(triton_loss.losses, (logits, targets, 0.1, PAD), test_utils=checks)
