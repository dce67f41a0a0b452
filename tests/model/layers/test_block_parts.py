"""RMS norms, also of queries and keys, rotary positions and gated maps, against torch or loops."""

import cmath

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from model.drawn import drawn, filled
from nmtdeep.config.load import from_mapping
from nmtdeep.errors import ConfigError
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.feed_forward import FeedForward, Gated
from nmtdeep.model.layers.norm import HeadNorm, RmsNorm
from nmtdeep.model.layers.positions import Rotary
from nmtdeep.model.layers.sublayer import Context
from nmtdeep.packing import Packing

WIDTH, HEADS, BASE = 12, 2, 100.0
EXACT = {"rtol": 0, "atol": 1e-12}


def test_rms_norm_equals_its_formula_and_keeps_the_weights_precision():
    norm, x = filled(RmsNorm(WIDTH, eps=1e-3)), drawn(2, 3, WIDTH)
    for place in ((0, 1), (1, 2)):
        mean = sum(float(value) ** 2 for value in x[place]) / WIDTH
        expected = norm.weight * x[place] / (mean + 1e-3) ** 0.5
        assert_close(norm(x)[place], expected, **EXACT)
    assert norm.float()(x.bfloat16()).dtype == torch.float32


def rotated(head, position):
    """The features i and i + d_h/2 as a complex number, times e^(i m theta)."""
    half = len(head) // 2
    turned = [
        complex(head[i], head[i + half]) * cmath.exp(1j * position * BASE ** (-2 * i / len(head)))
        for i in range(half)
    ]
    return [number.real for number in turned] + [number.imag for number in turned]


def test_rotary_positions_are_products_of_complex_numbers():
    rotary, x = Rotary(WIDTH // HEADS, base=BASE), drawn(2, 4, WIDTH)
    positions = torch.tensor([0, 1, 5, 900])
    out = rotary(x, positions).view(2, 4, HEADS, -1)
    for row, position in enumerate(positions.tolist()):
        expected = rotated(x.view(2, 4, HEADS, -1)[1, row, 1], position)
        assert out[1, row, 1].tolist() == pytest.approx(expected, abs=1e-12)
    assert_close(rotary(x[:, :1], positions[2:3])[:, 0], rotary(x, positions[[2] * 4])[:, 0])
    assert rotary(x.bfloat16(), positions).dtype == torch.bfloat16


def attention(kind, **options):
    norms = [HeadNorm(WIDTH // HEADS, eps=1e-5) for _ in range(2)]
    return filled(kind(WIDTH, HEADS, norms=norms, **options))


def heads_of(x):
    return x.view(len(x), -1, HEADS, WIDTH // HEADS).transpose(1, 2)


def by_torch(module, q, k, v, *, causal):
    """F.scaled_dot_product_attention of normalized queries and keys."""
    q, k = (
        F.rms_norm(heads_of(part), (WIDTH // HEADS,), norm.weight, 1e-5)
        for part, norm in zip((q, k), module.norms, strict=True)
    )
    if getattr(module, "rotary", None) is not None:
        for part in (q, k):
            for sentence, head, position in torch.cartesian_prod(
                *map(torch.arange, part.shape[:3])
            ):
                turned = rotated(part[sentence, head, position], int(position))
                part.data[sentence, head, position] = part.new_tensor(turned)
    read = F.scaled_dot_product_attention(q, k, heads_of(v), is_causal=causal)
    return module.output(read.transpose(1, 2).flatten(2))


@torch.no_grad()
@pytest.mark.parametrize("causal", [False, True])
def test_attention_equals_torchs(causal):
    x, memory = drawn(2, 5, WIDTH), drawn(2, 4, WIDTH, seed=2)
    rotary = Rotary(WIDTH // HEADS, base=BASE)
    own = attention(SelfAttention, causal=causal, rotary=rotary)
    expected = by_torch(own, *own.qkv(x).chunk(3, dim=2), causal=causal)
    assert_close(own(x, Context()), expected, **EXACT)
    shown = own.weights(x, Context()) @ heads_of(own.qkv(x).chunk(3, dim=2)[2])
    if not causal:  # the maps that are shown, times the values
        assert_close(own.output(shown.transpose(1, 2).flatten(2)), expected, **EXACT)
    cross = attention(CrossAttention)
    expected = by_torch(cross, cross.query(x), *cross.key_value(memory).chunk(2, 2), causal=False)
    assert_close(cross(x, Context(memory=memory)), expected, **EXACT)


@torch.no_grad()
def test_positions_count_from_the_start_of_each_packed_sentence():
    own = attention(SelfAttention, causal=True, rotary=Rotary(WIDTH // HEADS, base=BASE))
    first, second = drawn(1, 3, WIDTH), drawn(1, 2, WIDTH, seed=2)
    packing = Packing(torch.tensor([0, 3, 5], dtype=torch.int32), torch.tensor([0, 1, 2, 3, 4]), 3)
    row = own(torch.cat((first, second), dim=1), Context(packing=packing))
    assert_close(row[:, :3], own(first, Context()), **EXACT)
    assert_close(row[:, 3:], own(second, Context()), **EXACT)


@pytest.mark.parametrize(("activation", "f"), [(nn.SiLU(), F.silu), (nn.GELU(), F.gelu)])
def test_gated_maps_equal_their_formula(activation, f):
    """(f(x W) * x V) W_2 (Shazeer 2020, Eq. 6), and an initializer draws three matrices."""
    module, x = filled(FeedForward(WIDTH, 7, activation=Gated(activation))), drawn(2, 3, WIDTH)
    (w, v), (b, c) = module.inner.weight.chunk(2), module.inner.bias.chunk(2)
    expected = module.outer(f(x @ w.T + b) * (x @ v.T + c))
    assert_close(module(x, Context()), expected, **EXACT)
    listed = [(matrix.role, matrix.fan_in, matrix.fan_out) for matrix in module.init_matrices()]
    assert listed == [("inner", WIDTH, 7), ("inner", WIDTH, 7), ("outer", 7, WIDTH)]


def test_rotation_needs_pairs_of_features():
    for where in ({}, {"encoder": {"width": 24}, "embeddings": {"sharing": "decoder"}}):
        with pytest.raises(ConfigError, match="3 features of a head"):
            from_mapping({"model": {"width": 24, "positions": "rotary"} | where})
