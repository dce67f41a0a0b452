"""The index of cache entries against hypotheses that remember their own ancestors."""

from __future__ import annotations

import math

import pytest
import torch
from torch.testing import assert_close

from nmtdeep.model.kernels import keep_rows
from nmtdeep.model.layers.cache import CacheIndex


def test_a_hypothesis_reads_the_entries_of_its_ancestors() -> None:
    generator = torch.Generator().manual_seed(1)
    index = CacheIndex(torch.zeros(4, 1, dtype=torch.float64))
    grown: list[list[list[int]]] = [[[]] for _ in range(4)]  # each hypothesis' entries, by sentence
    count, places = 0, []
    # Hypotheses of a sentence after each step, and the sentences that then go on.
    for step, (size, stay) in enumerate(
        [(3, None), (3, None), (2, [0, 3, 2]), (4, [2]), (1, None)]
    ):
        width = len(grown[0])
        index.add(width)
        for sentence in grown:
            for number, hypothesis in enumerate(sentence):
                hypothesis.append(count + number)
        count += width
        places += [step] * width
        assert index.offsets.tolist() == [place - step for place in places]
        if index.bias is None:
            assert all(hypothesis == list(range(count)) for (hypothesis,) in grown)
        else:
            expected = torch.full((len(grown), 1, width, count), -math.inf, dtype=torch.float64)
            for sentence, hypotheses in enumerate(grown):
                for number, hypothesis in enumerate(hypotheses):
                    expected[sentence, 0, number, hypothesis] = 0
            assert_close(index.bias, expected, rtol=0, atol=0)
        going = list(range(len(grown))) if stay is None else stay
        origins = torch.randint(width, (len(going), size), generator=generator)
        rows = origins + width * torch.tensor(going)[:, None]
        index.select(rows.flatten(), None if stay is None else torch.tensor(stay))
        grown = [
            [list(grown[sentence][origin]) for origin in own]
            for sentence, own in zip(going, origins.tolist(), strict=True)
        ]


@pytest.mark.parametrize("sentences", [[0, 1, 2, 3, 4], [0, 4, 2], [3, 4, 2], [2, 0], [4], []])
def test_keep_rows_is_indexing(sentences: list[int]) -> None:
    x = torch.arange(10.0).view(5, 2)
    chosen = torch.tensor(sentences, dtype=torch.int64)
    expected = x[chosen]
    assert torch.equal(keep_rows(x, chosen), expected)
