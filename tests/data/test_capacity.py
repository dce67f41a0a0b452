"""Capacities of packed batches: what fills them up, which are chosen, what a filled batch is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtdeep.config.training import Batches
from nmtdeep.data.batch import read_batch
from nmtdeep.data.batching import batches_of_update, updates
from nmtdeep.data.capacity import MOST, SAMPLE, Capacity, capacities, fitting
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.text.vocabulary import EOS, PAD

SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [4, 3, 9, EOS]]
TARGETS = [[7, EOS], [8, 8, 4, 6, EOS], [3, 9, EOS]]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 7)), min_size=1, max_size=20),
    free=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    room=st.integers(0, 12),
)
def test_fillers_fill_both_sides_with_as_many_sentences(lengths, free, room):
    sides = np.array(lengths).T
    tokens = sides.sum(axis=1) + free
    capacity = Capacity((int(tokens[0]), int(tokens[1])), sides.shape[1] + room, (9, 7))
    fillers = capacity.fillers(sides)
    counts = [-(-free[0] // 9), -(-free[1] // 7)]  # enough sentences for the rest of each side
    if fillers is None:
        assert max(counts) > room
        return
    assert [each.sum() for each in fillers] == list(free)
    assert len(fillers[0]) == len(fillers[1]) == max(counts) <= room
    for each, longest, count in zip(fillers, (9, 7), counts, strict=True):
        assert all(1 <= length <= longest for length in each[:count])
        assert not any(each[count:])


def test_the_smallest_capacity_that_fits_is_taken():
    small, large = Capacity((16, 16), 9, (8, 8)), Capacity((32, 32), 9, (8, 8))
    for count, longest, expected in ((2, 8, small), (3, 8, large), (5, 8, None), (1, 9, None)):
        assert fitting([large, small], np.full((2, count), longest)) == expected
    assert fitting([], np.full((2, 2), 8)) is None


def plan(lengths, epochs, **sizes):
    """Lengths of the batches of packed updates."""
    for epoch in epochs:
        for update in updates(lengths, Batches(**sizes), seed=1, epoch=epoch):
            for batch in batches_of_update(
                lengths, update, sizes["tokens_per_update"], packed=True, ranks=1
            ):
                yield lengths[:, batch].astype(np.int64)


@pytest.mark.slow
@pytest.mark.parametrize("group", [4096, 25_000])
def test_few_capacities_hold_nearly_all_later_batches_with_little_padding(group):
    draw = np.random.default_rng(3)
    longer = draw.lognormal(np.log(27) - 0.125, 0.5, 60_000)
    sides = [np.clip(longer * draw.normal(1, 0.1, len(longer)), 1, 200) + 1 for _ in range(2)]
    sizes = {"group_tokens": group, "tokens_per_update": 25_000}
    lengths = np.array(sides).astype(np.int32)
    chosen = capacities([*plan(lengths, range(6), **sizes)][:SAMPLE])
    later = [*plan(lengths, range(6, 12), **sizes)]
    found = [fitting(chosen, each) for each in later]
    held = [(each, of) for each, of in zip(later, found, strict=True) if of]
    padded = sum(sum(of.tokens) for _, of in held)
    assert len(chosen) <= MOST
    assert len(held) >= 0.97 * len(later)
    assert 1 - sum(int(each.sum()) for each, _ in held) / padded <= 0.05


def test_a_filled_batch_has_the_sentences_then_padding_then_empty_ones(make_corpus):
    corpus = ParallelCorpus(make_corpus(SOURCES), make_corpus(TARGETS))
    capacity = Capacity((16, 13), 8, (5, 6))
    batch = read_batch(corpus, np.array([0, 2]), packed=True, capacity=capacity)
    source, target = batch.packing
    # 9 source tokens of 16 and 5 target tokens of 13 are real: 7 and 8 are left for two more.
    assert source.offsets.tolist() == [0, 5, 9, 12, 16, 16, 16, 16, 16]
    assert target.offsets.tolist() == [0, 2, 5, 9, 13, 13, 13, 13, 13]
    assert (source.longest, target.longest) == (5, 6)
    assert batch.source.tolist() == [[*SOURCES[0], *SOURCES[2], *[PAD] * 7]]
    assert batch.target_output.tolist() == [[*TARGETS[0], *TARGETS[2], *[PAD] * 8]]
    assert batch.target_input.tolist() == [[EOS, 7, EOS, 3, 9, *[PAD] * 8]]
    assert (batch.sentences, batch.target_tokens, batch.real_tokens) == (2, 5, 14)
    assert batch.padded_tokens == 29
    part = batch.part(1, 2)
    assert part.capacity is None
    assert part.source.tolist() == [SOURCES[2]]
