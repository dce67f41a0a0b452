"""Learned weights: those of the parameters, number by number; the paper's mask."""

import math
from typing import Any

import pytest

from nmtdeep.analysis.combination import combination_weights, is_masked

DLCL = {"type": "dlcl"}


def numbers(weights: list[Any], where: str) -> dict[tuple[str, int], float]:
    return {(row.reader, row.entry): row.weight for row in weights if row.where == where}


@pytest.mark.parametrize(
    ("combination", "depth", "entries"),
    [
        (DLCL, 3, {"1": [0], "2": [0, 1], "3": [0, 1, 2], "top": [0, 1, 2, 3]}),
        ({"type": "denseformer", "dilation": 2, "period": 2}, 5, {"3": [0, 2], "5": [0, 2, 4]}),
    ],
)
def test_weights_are_those_of_the_parameters(combination, depth, entries, tiny_model):
    """Below the diagonal; of a denseformer behind periods."""
    model = tiny_model(combinations=(combination, "attention_residuals"), depth=depth)
    square = model.encoder.combination.weight[:, :, 0].tolist()
    weights = combination_weights(model)
    assert numbers(weights, "encoder") == {
        (reader, entry): square[depth if reader == "top" else int(reader) - 1][entry]
        for reader, read in entries.items()
        for entry in read
    }
    assert not numbers(weights, "decoder")


def test_weights_after_a_softmax_over_a_window_are_shown(tiny_model):
    sharp = DLCL | {"softmax": True, "window": 2, "weights": "scalar_n", "groups": 2}
    model = tiny_model(combinations=("residual", sharp), depth=3)
    weights = [row for row in combination_weights(model) if row.reader == "3"]
    raw = model.decoder.combination.weight[2, 1:3].tolist()
    shares = [
        [math.exp(raw[entry][group]) / sum(math.exp(row[group]) for row in raw) for group in (0, 1)]
        for entry in (0, 1)
    ]
    assert [row.entry for row in weights] == [1, 2]
    for row, share in zip(weights, shares, strict=True):
        assert row.weight == pytest.approx(sum(share) / 2)
        assert row.deviation == pytest.approx(abs(share[0] - share[1]) / 2)


def test_sparse_blocks_are_read_at_boundaries(tiny_model):
    blocks = {"type": "sparse_blocks", "blocks": [0, 1, 3]}
    model = tiny_model(combinations=(blocks, "residual"), depth=3)
    square = model.encoder.combination.weight[:, :, 0].tolist()
    assert numbers(combination_weights(model), "encoder") == {
        ("1", 0): square[0][0],
        ("2", 0): square[1][0],
        ("2", 1): square[1][1],
        ("top", 0): square[2][0],
        ("top", 1): square[2][1],
        ("top", 3): square[2][2],
    }


def test_transparent_attention_has_a_row_for_each_decoder_layer(tiny_model):
    model = tiny_model(bridge="transparent")
    weights = numbers(combination_weights(model), "bridge")
    for layer, row in enumerate(model.bridge.weight.tolist(), start=1):
        total = sum(map(math.exp, row))
        for entry, weight in enumerate(row):
            assert weights[str(layer), entry] == pytest.approx(math.exp(weight) / total)


@pytest.mark.parametrize(
    ("weight", "row", "masked"),
    [
        (0.09, [0.09, 0.5], True),
        (-0.11, [-0.11, 0.5], False),
        (0.11, [0.11, -2.3], True),  # 5 % of 2.3 is 0.115
        (0.12, [0.12, -2.3], False),
    ],
)
def test_the_mask_is_that_of_the_paper(weight, row, masked):
    assert is_masked(weight, row) is masked
