"""Sinusoids and relative positions by their formulas, number by number."""

import math

import pytest
import torch
from torch.testing import assert_close

from model.drawn import filled
from nmtdeep.model.kernels.plain_attention import attention_weights, weighted_values
from nmtdeep.model.layers.positions import RelativePositions, Sinusoidal, sinusoids


def wave(position, place, width):
    """tensor2tensor's sines, then cosines, of rates from 1 down to 1/10000."""
    half = width // 2
    rate = 10_000 ** (-(place % half) / (half - 1))
    return (math.sin if place < half else math.cos)(position * rate)


def test_the_module_adds_from_any_start_and_grows_its_table():
    positions = Sinusoidal(6)
    x = torch.zeros(2, 5, 6, dtype=torch.float64)
    for start in (0, 4, 300, 7, 1000):  # the table holds 256 positions at first
        expected = [[wave(start + row, place, 6) for place in range(6)] for row in range(5)]
        out = positions(x, start)
        assert_close(out[1], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-11)
    assert positions.state_dict() == {}


def test_rates_as_the_paper_prints_them():
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos of the same; cosines last."""
    out = Sinusoidal(6, first=2, rates="paper")(torch.zeros(1, 4, 6, dtype=torch.float64))
    expected = [
        [f(position / 10_000 ** (2 * i / 6)) for f in (math.sin, math.cos) for i in range(3)]
        for position in range(2, 6)
    ]
    assert_close(out[0], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_module_keeps_the_inputs_precision():
    x = torch.zeros(1, 3, 6, dtype=torch.bfloat16)
    out = Sinusoidal(6)(x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out[0], sinusoids(0, 3, 6).to(torch.bfloat16))


@pytest.mark.parametrize("clip", [1, 9])
@pytest.mark.parametrize("queries", [5, 1])
def test_relative_positions_equal_equations_3_and_4_of_shaw(clip, queries):
    keys = 5
    positions = filled(RelativePositions(3, clip, values=True))
    assert positions.keys.shape == positions.values.shape == (2 * clip + 1, 3)
    q = torch.randn(2, 2, queries, 3, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, keys, 3, dtype=torch.float64)
    # The last query is at the last key.
    offsets = torch.arange(keys) - torch.arange(keys - queries, keys)[:, None]
    vectors = positions.at(offsets)
    weights = attention_weights(q, k, bias=None, relative=vectors)
    rows = torch.tensor([[max(-clip, min(clip, int(j))) + clip for j in row] for row in offsets])
    scores = (q[:, :, :, None] * (k[:, :, None] + positions.keys[rows])).sum(dim=4) / math.sqrt(3)
    assert_close(weights, scores.softmax(dim=3))
    expected = (weights[..., None] * (v[:, :, None] + positions.values[rows])).sum(dim=3)
    assert_close(weighted_values(weights, v, relative=vectors), expected)
