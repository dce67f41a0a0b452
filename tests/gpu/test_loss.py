"""The kernel of the loss, compiled for a GPU, against float64 cross-entropy of torch."""

import pytest
import torch
from torch.testing import assert_close

pytest.importorskip("triton", reason="Triton is not installed")
from model.kernels.test_triton_loss import PAD, drawn, expected

from nmtdeep.model.kernels.triton_loss import losses

# Rounded once; a number halfway between two may go either way.
ROUNDED = {torch.float32: 1e-5, torch.bfloat16: 2**-8, torch.float16: 2**-11}


@pytest.mark.parametrize("dtype", ROUNDED)
@pytest.mark.parametrize("types", [7, 10_008, 10_149, 32_000])
def test_losses_and_gradient(types, dtype, device):
    if device.type == "cpu":
        pytest.skip("a CPU has no such kernel")
    logits, targets = (each.repeat_interleave(70, dim=0) for each in drawn(types, 8.0, dtype))
    loss, nll, gradient = expected(logits, targets, 0.1)
    logits, targets = logits.to(device), targets.to(device)
    logits[targets == PAD] = float("nan")
    found = losses(logits, targets, 0.1, PAD)
    assert_close(found.double().cpu(), torch.stack((loss, nll)), rtol=1e-5, atol=1e-5)
    near = {"rtol": 1.01 * ROUNDED[dtype], "atol": 2**-24}
    assert_close(logits.double().cpu(), gradient, **near)
