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


def relative(clip, *, values):
    return filled(RelativePositions(3, clip, values=values))


@pytest.mark.parametrize("clip", [1, 9])
@pytest.mark.parametrize("queries", [5, 1])
def test_relative_positions_equal_a_loop(clip, queries):
    keys = 5
    positions = relative(clip, values=True)
    assert positions.keys.shape == positions.values.shape == (2 * clip + 1, 3)
    q = torch.randn(2, 2, queries, 3, dtype=torch.float64)
    k, v = torch.randn(2, 2, 2, keys, 3, dtype=torch.float64)
    # The last query is at the last key.
    offsets = torch.arange(keys) - torch.arange(keys - queries, keys)[:, None]
    vectors = positions.at(offsets)
    weights = attention_weights(q, k, bias=None, relative=vectors)
    read = weighted_values(weights, v, relative=vectors)
    for query in range(queries):
        own = keys - queries + query
        rows = [max(-clip, min(clip, key - own)) + clip for key in range(keys)]
        scores = [
            (q[:, :, query] * (k[:, :, key] + positions.keys[row])).sum(dim=2) / math.sqrt(3)
            for key, row in enumerate(rows)
        ]
        expected = torch.stack(scores, dim=2).softmax(dim=2)
        assert_close(weights[:, :, query], expected)
        summed = sum(
            weights[:, :, query, key, None] * (v[:, :, key] + positions.values[row])
            for key, row in enumerate(rows)
        )
        assert_close(read[:, :, query], summed)
