"""An epoch in windows: every sentence once, exact resuming, the plan of the whole in one."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Batches
from nmtdeep.data.batching import updates
from nmtdeep.data.corpus import MonolingualCorpus, ParallelCorpus
from nmtdeep.data.windows import Epoch
from nmtdeep.errors import UserError
from nmtdeep.training.feed import upcoming
from nmtdeep.training.opening import check
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress

BATCHES = Batches(group_tokens=40, tokens_per_update=90)


def corpus(lengths: np.ndarray) -> ParallelCorpus:
    """Sentences of these lengths, `(2, sentences)`; their ids are 2, 3, ..."""
    offsets = np.cumsum(np.pad(lengths, ((0, 0), (1, 0))), axis=1).astype(np.int64)
    sides = [MonolingualCorpus(np.arange(ends[-1]).astype(np.uint16), ends) for ends in offsets]
    return ParallelCorpus(*sides)


def random_lengths(sentences: int) -> np.ndarray:
    return np.random.default_rng(sentences).integers(1, 12, (2, sentences))


@given(st.integers(1, 90), st.integers(1, 20), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_each_sentence_once_an_epoch(count: int, block: int, size: int, number: int) -> None:
    lengths = random_lengths(count)
    epoch = Epoch(corpus(lengths), 1, number, sentences=size, block=block)
    seen: list[int] = []
    for place in range(len(epoch)):
        window = epoch.window(place, BATCHES)
        assert np.array_equal(window.lengths, lengths[:, window.indices])
        assert len(window.indices) < size + 2 * block
        flat = [index for update in window.updates for group in update for index in group.tolist()]
        assert sorted(flat) == list(range(len(window.indices)))
        # Blocks are whole: a sentence is in the window with all of its block.
        blocks = {index // block for index in window.indices.tolist()}
        whole = [index for index in range(count) if index // block in blocks]
        assert window.indices.tolist() == whole
        seen += window.indices.tolist()
    assert sorted(seen) == list(range(count))


def test_a_corpus_of_one_window_has_the_plan_of_the_whole() -> None:
    lengths = random_lengths(100)
    for number in (0, 3):
        epoch = Epoch(corpus(lengths), 5, number, sentences=100, block=7)
        assert len(epoch) == 1
        window = epoch.window(0, BATCHES)
        assert window.indices.tolist() == list(range(100))
        budgets = {"group_tokens": 40, "tokens_per_update": 90}
        whole = updates(lengths.astype(np.int32), seed=5, epoch=number, **budgets)
        assert plain(window.updates) == plain(whole)


def plain(plan: Any) -> list[list[list[int]]]:
    return [[group.tolist() for group in update] for update in plan]


def test_windows_hold_other_blocks_in_other_epochs_and_in_no_order_of_the_corpus() -> None:
    epochs = [
        Epoch(corpus(random_lengths(400)), 1, number, sentences=100, block=5) for number in (0, 1)
    ]
    sets = []
    for epoch in epochs:
        windows = [epoch.window(number, BATCHES) for number in range(len(epoch))]
        assert [len(window.indices) for window in windows] == [100] * 4
        assert len({str(plain(window.updates)) for window in windows}) == 4
        sets.append([frozenset(window.indices.tolist()) for window in windows])
        for window in windows:
            # A contiguous quarter would have 99 neighbors, drawn blocks have about 80 + 20 / 4.
            neighbors = np.diff(window.indices) == 1
            assert 80 <= neighbors.sum() < 95
            assert window.indices.max() - window.indices.min() > 200
    assert not set(sets[0]) & set(sets[1])


SMALL = {"window": 12, "block": 4}


def stream(run: Any, progress: Progress, count: int, ranks: Ranks = ALONE) -> list[tuple]:
    changes = {"batches": {"tokens_per_update": 300, "group_tokens": 200, "max_tokens": 150}}
    values = {**run.recipe.model_dump(), "training": changes}
    recipe = type(run.recipe).model_validate(values)
    coming = upcoming(Setup(recipe, run.data, ranks), progress, **SMALL)
    return [
        ([(number, batch.source.tolist()) for number, batch in item.batches.batches], item.position)
        for item in islice(coming, count)
    ]


def test_resuming_anywhere_returns_the_rest_of_the_whole(tiny_run: Any) -> None:
    whole = stream(tiny_run, Progress(), 40)
    positions = [position for _, position in whole]
    assert {position.window for position in positions} == {0, 1, 2, 3, 4}
    assert positions[-1].epoch >= 1
    for before, after in pairwise(positions):
        assert after > before
    for done, position in enumerate(positions, 1):
        state = Progress(update=done, position=position).to_json()
        assert stream(tiny_run, Progress.from_json(state), 40 - done) == whole[done:]


def test_several_processes_have_the_updates_of_one_and_resume_as_many_or_as_few(
    tiny_run: Any,
) -> None:
    whole = stream(tiny_run, Progress(), 30)
    for size in (2, 3):
        progress = Progress(update=9, position=whole[8][1])
        parts = [stream(tiny_run, progress, 21, Ranks(rank, size)) for rank in range(size)]
        for shares, (batches, place) in zip(zip(*parts, strict=True), whole[9:], strict=True):
            assert {position for _, position in shares} == {place}
            assert sorted(batch for mine, _ in shares for batch in mine) == sorted(batches)


@pytest.mark.parametrize("before", [0, (1 << 20) - 4, (1 << 20) + 5])
def test_the_longest_sentence_is_found_in_pieces(before: int) -> None:
    """A piece has 2^20 sentences; those `before` have one token."""
    lengths = np.array([[3, 1, 7, 2, 2, 9, 1], [1, 5, 1, 9, 2, 1, 9]])
    whole = np.pad(lengths, ((0, 0), (before, 0)), constant_values=1)
    assert corpus(whole).longest() == (before + 4, 9)
    assert corpus(lengths[:, :0]).longest() == (0, 0)


def test_a_sentence_too_long_is_named_by_its_number_in_the_corpus(tiny_run: Any) -> None:
    longest = tiny_run.data.corpus("train").longest()
    recipes = [
        Recipe.model_validate({**tiny_run.recipe.model_dump(), "training": {"batches": batches}})
        for batches in ({"max_tokens": longest.tokens}, {"max_tokens": longest.tokens - 1})
    ]
    check(recipes[0], tiny_run.data, ALONE)
    with pytest.raises(
        UserError, match=f"sentence {longest.sentence} of train has {longest.tokens} tokens"
    ):
        check(recipes[1], tiny_run.data, ALONE)
