"""Slots against hypotheses that remember their own ancestors."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from nmtdeep.model.layers.slots import Slots, keep


def test_slots_are_those_of_a_hypothesis_ancestors() -> None:
    generator = torch.Generator().manual_seed(1)
    slots = Slots(torch.zeros(4, 1, dtype=torch.float64))
    grown: list[list[list[int]]] = [[[]] for _ in range(4)]  # each hypothesis' slots, by sentence
    count, places = 0, []
    # Hypotheses of a sentence after each step, and the sentences that then go on.
    for step, (size, stay) in enumerate(
        [(3, None), (3, None), (2, [0, 3, 2]), (4, [2]), (1, None)]
    ):
        width = len(grown[0])
        slots.add(width)
        for sentence in grown:
            for number, hypothesis in enumerate(sentence):
                hypothesis.append(count + number)
        count += width
        places += [step] * width
        assert slots.offsets.tolist() == [place - step for place in places]
        if slots.bias is None:
            assert all(hypothesis == list(range(count)) for (hypothesis,) in grown)
        else:
            expected = torch.full((len(grown), 1, width, count), -math.inf, dtype=torch.float64)
            for sentence, hypotheses in enumerate(grown):
                for number, hypothesis in enumerate(hypotheses):
                    expected[sentence, 0, number, hypothesis] = 0
            assert_close(slots.bias, expected, rtol=0, atol=0)
        going = list(range(len(grown))) if stay is None else stay
        origins = torch.randint(width, (len(going), size), generator=generator)
        rows = origins + width * torch.tensor(going)[:, None]
        slots.select(rows.flatten(), None if stay is None else torch.tensor(stay))
        grown = [
            [list(grown[sentence][origin]) for origin in own]
            for sentence, own in zip(going, origins.tolist(), strict=True)
        ]


@pytest.mark.parametrize("sentences", [[0, 1, 2, 3, 4], [0, 4, 2], [3, 4, 2], [2, 0], [4], []])
def test_keep_is_indexing(sentences: list[int]) -> None:
    x = torch.arange(10.0).view(5, 2)
    chosen = torch.tensor(sentences, dtype=torch.int64)
    expected = x[chosen]
    assert torch.equal(keep(x, chosen), expected)
