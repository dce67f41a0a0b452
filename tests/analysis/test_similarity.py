"""Similarities of layers: equal to a slow loop over sentences and positions."""

import math
from collections.abc import Sequence

import pytest
import torch

from nmtdeep.analysis.similarity import layer_similarities

SENTENCES = [[5, 6, 7, 8, 9, 1], [9, 1], [3, 4, 4, 1], [1]]


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(map(math.prod, zip(a, b, strict=True))) / (math.hypot(*a) * math.hypot(*b))


def mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def of_sentence(outputs: list[list[list[float]]], layer: int) -> tuple[float, float, float]:
    here, below, embedding = outputs[layer], outputs[max(layer - 1, 0)], outputs[0]
    middle = [mean(feature) for feature in zip(*here, strict=True)]
    return (
        mean([cosine(*pair) for pair in zip(here, embedding, strict=True)]),
        mean([cosine(*pair) for pair in zip(here, below, strict=True)]),
        mean([cosine(position, middle) for position in here]),
    )


def test_all_three_equal_a_slow_loop(tiny_model, make_corpus):
    model = tiny_model(combinations=("dlcl", "residual"), depth=3)
    rows = layer_similarities("run", model, make_corpus(SENTENCES))
    alone = [
        [output[0].tolist() for output in model.encode_deeply(torch.tensor([ids]))[1]]
        for ids in SENTENCES
    ]
    assert [row.layer for row in rows] == [0, 1, 2, 3]
    for row in rows:
        loop = [of_sentence(outputs, row.layer) for outputs in alone]
        expected = [mean(figure) for figure in zip(*loop, strict=True)]
        assert row.to_embedding == pytest.approx(expected[0], abs=1e-9)
        if row.layer:
            assert row.to_previous == pytest.approx(expected[1], abs=1e-9)
        assert row.inter == pytest.approx(expected[2], abs=1e-9)
    assert rows[0].to_previous is None
