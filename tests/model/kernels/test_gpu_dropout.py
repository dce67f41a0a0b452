"""Dropout of compiled layers on a GPU: which elements it keeps, their scale and gradients."""

import functools
from unittest import mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from nmtdeep.model import kernels
from nmtdeep.model.kernels import gpu_dropout
from nmtdeep.model.layers.feed_forward import FeedForward

ROWS, WIDTH = 2048, 512


def lowbias32(x, between):
    """Wellons' function of 32-bit numbers; `between` is xored in after the first product."""
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32 ^ between
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


def kept(seed, probability=0.1, rows=ROWS):
    torch.manual_seed(seed)
    return gpu_dropout.dropout(torch.ones(rows, WIDTH, dtype=torch.float64), probability) != 0


@pytest.mark.parametrize("seed", [0, 2**63 - 2, 0x12345678_9ABCDEF0, 0x7000000F_00000001])
@pytest.mark.parametrize("probability", [0.1, 0.3])
def test_hash_of_seed_and_place_decides(seed, probability):
    with mock.patch("torch._inductor.inductor_prims.seed", lambda _: torch.tensor(seed)):
        actual = kept(0, probability)
    places = np.arange(ROWS * WIDTH, dtype=np.uint64) ^ np.uint64(seed % 2**32)
    # As a signed number, so that those from 2^31 on are the smallest.
    numbers = (lowbias32(places, seed >> 32) + 2**31) % 2**32
    assert actual.equal(torch.from_numpy(numbers >= probability * 2**32).view(ROWS, WIDTH))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_scale_and_dtype_are_those_of_torch(dtype):
    x = torch.randn(64, 64, dtype=dtype)
    y = gpu_dropout.dropout(x, 0.1)
    scaled = F.dropout(x, 0.1)
    both = (y != 0) & (scaled != 0)
    assert y.dtype == dtype
    assert both.float().mean() > 0.5
    rounding = {torch.float32: 2**-23, torch.bfloat16: 2**-7, torch.float64: 1e-9}[dtype]
    torch.testing.assert_close(y[both], scaled[both], rtol=rounding, atol=0)


def test_compiled_layer_keeps_seeds_and_no_masks():
    """Gradients are those of the same elements, which backward finds from the seed."""
    torch.compiler.reset()
    tokens, width, inner = 50, 16, 64
    layer = FeedForward(width, inner, dropout=0.5, activation=torch.nn.Tanh())
    sizes = []

    def note(x):
        sizes.append((x.dtype, x.numel()))
        return x

    def form(x, probability, *, training):
        return gpu_dropout.dropout(x, probability)

    compiled = torch.compile(
        functools.partial(layer, context=None),
        fullgraph=True,
        dynamic=True,
        backend="aot_eager_decomp_partition",
    )
    x = torch.randn(1, tokens, width)
    with mock.patch.object(kernels, "dropout", form):
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            y = compiled(x)
        torch.manual_seed(1)
        again = compiled(x)
        other = compiled(x)
    assert y.equal(again)
    assert not y.equal(other)
    assert (torch.int64, 1) in sizes  # the seed
    assert all(size < tokens * inner or dtype.is_floating_point for dtype, size in sizes), sizes

    torch.manual_seed(1)
    mask = gpu_dropout.dropout(torch.ones(1, tokens, inner), 0.5)
    expected = layer.outer(mask * torch.tanh(layer.inner(x)))
    torch.testing.assert_close(y, expected)
    weight = torch.randn_like(y)
    parameters = list(layer.parameters())
    torch.testing.assert_close(
        torch.autograd.grad((y * weight).sum(), parameters),
        torch.autograd.grad((expected * weight).sum(), parameters),
    )
