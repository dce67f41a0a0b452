"""Each form of attention against torch's own kernel."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from model.drawn import drawn
from nmtdeep.model.kernels import attention
from nmtdeep.model.kernels.cpu_attention import VECTOR
from nmtdeep.model.kernels.cpu_dropout import noise
from nmtdeep.model.kernels.plain_attention import (
    Mask,
    join_heads,
    relative_bias,
    split_heads,
)

SENTENCES, HEADS, SIZE = 3, 2, 5
WIDTH = HEADS * SIZE
PACKINGS = {"together": (3,), "memory": (1, 2), "apart": (1, 1, 1)}
EXACT = {"rtol": 0, "atol": 1e-12}


def packed(packing, queries, keys):
    sizes = [(keys if number else queries, parts) for number, parts in enumerate(PACKINGS[packing])]
    return [drawn(SENTENCES, places, parts * WIDTH, seed=parts) for places, parts in sizes]


def zero_vectors(queries, keys):
    """Relative positions that change nothing but the form that computes them."""
    vectors = torch.zeros(queries, keys, SIZE, dtype=torch.float64)
    return vectors, vectors


def separate(inputs):
    """q, k and v by head."""
    return [split_heads(part, HEADS) for x in inputs for part in x.split(WIDTH, dim=2)]


def by_torch(inputs, how):
    q, k, v = separate(inputs)
    mask = how.padding
    if how.causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        mask = seen if mask is None else seen & mask
    return join_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))


def padding(keys):
    lengths = torch.tensor([keys, max(1, keys - 2), 1])
    return (torch.arange(keys) < lengths[:, None])[:, None, None, :]


@pytest.mark.parametrize(("causal", "masked"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("length", [1, VECTOR - 1, VECTOR, 2 * VECTOR + 1])
@pytest.mark.parametrize(
    ("packing", "written_out"), [*product(PACKINGS, [False]), ("together", True)]
)
def test_values_and_gradients_equal_those_of_torch(packing, written_out, length, causal, masked):
    inputs = [x.requires_grad_() for x in packed(packing, length, length)]
    relative = zero_vectors(length, length) if written_out else None
    mask = Mask(padding(length) if masked else None, causal, relative)
    ours = attention(*inputs, heads=HEADS, mask=mask)
    theirs = by_torch(inputs, mask)
    assert_close(ours, theirs, **EXACT)
    towards = drawn(*ours.shape, seed=9)
    gradients = [torch.autograd.grad(y, inputs, towards) for y in (ours, theirs)]
    assert_close(*gradients, **EXACT)


@pytest.mark.parametrize("packing", ["memory", "apart"])
def test_queries_and_keys_may_differ_in_number(packing):
    inputs = packed(packing, 3, 7)
    mask = Mask(padding(7))
    assert_close(attention(*inputs, heads=HEADS, mask=mask), by_torch(inputs, mask), **EXACT)


@pytest.mark.parametrize("written_out", [False, True])
def test_dropout_applies_to_the_weights(written_out):
    (x,) = inputs = [tensor.requires_grad_() for tensor in packed("together", 4, 4)]
    relative = zero_vectors(4, 4) if written_out else None
    torch.manual_seed(5)
    dropped = noise(torch.Size((SENTENCES, HEADS, 4, 4)), 0.5, torch.float64)
    torch.manual_seed(5)
    ours = attention(x, heads=HEADS, mask=Mask(relative=relative), dropout_p=0.5)
    q, k, v = separate(inputs)
    theirs = join_heads((q @ k.transpose(2, 3) / SIZE**0.5).softmax(dim=3) * dropped @ v)
    assert_close(ours, theirs, **EXACT)
    towards = torch.randn_like(ours)
    gradients = [torch.autograd.grad(y, inputs, towards) for y in (ours, theirs)]
    assert_close(*gradients, **EXACT)


@pytest.mark.parametrize("written_out", [False, True])
def test_bf16_inputs_and_results_are_computed_in_fp32(written_out):
    inputs = [x.bfloat16() for x in packed("together", 6, 6)]
    mask = Mask(causal=True, relative=zero_vectors(6, 6) if written_out else None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = attention(*inputs, heads=HEADS, mask=mask)
    exact = by_torch([x.double() for x in inputs], mask)
    assert ours.dtype == torch.bfloat16
    # Only the result is rounded: to 8 bits, half a unit in the last of them.
    assert_close(ours.double(), exact, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize(("causal", "masked"), [(False, True), (True, False)])
def test_relative_positions_of_keys_are_a_bias(causal, masked):
    (qkv,) = (x.requires_grad_() for x in packed("together", 6, 6))
    vectors = torch.randn(6, 6, SIZE, dtype=torch.float64, requires_grad=True)
    mask = Mask(padding(6) if masked else None, causal, (vectors, None))
    written = attention(qkv, heads=HEADS, mask=mask)
    expected = torch.autograd.grad(written.sin().sum(), (qkv, vectors))
    q, k, v = separate([qkv])
    bias = relative_bias(q, vectors, mask)
    fused = join_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=bias))
    assert_close(fused, written, **EXACT)
    assert_close(torch.autograd.grad(fused.sin().sum(), (qkv, vectors)), expected, **EXACT)
