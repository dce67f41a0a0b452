"""Updates: each sentence once, budgets kept, the same on every device and after every restart."""

import math
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtdeep.config.training import Batches
from nmtdeep.data.batch import pad_batch, read_batch
from nmtdeep.data.batching import cut_by_tokens, sort_by_length, split_groups, updates
from nmtdeep.data.corpus import ParallelCorpus

LENGTHS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=80).map(
    lambda pairs: np.array(pairs, dtype=np.int32).T
)
BUDGETS = st.builds(
    lambda group, update: Batches(group_tokens=group, tokens_per_update=update),
    st.integers(1, 120),
    st.integers(1, 300),
)
PLACES = st.fixed_dictionaries({"seed": st.integers(0, 5), "epoch": st.integers(0, 5)})
FAST = settings(max_examples=60)


def plain(plan):
    return [[group.tolist() for group in update] for update in plan]


def padded(lengths, group):
    """Sentences times the longest side among them."""
    return len(group) * max(int(lengths[side, index]) for side in (0, 1) for index in group)


@given(LENGTHS, BUDGETS, PLACES)
@FAST
def test_each_sentence_once_an_epoch_and_every_budget_kept(lengths, budgets, place):
    plan = updates(lengths, budgets, **place)
    everything = [index for update in plan for group in update for index in group.tolist()]
    assert sorted(everything) == list(range(lengths.shape[1]))
    group_budget = min(budgets.group_tokens, budgets.tokens_per_update)
    for update in plan:
        assert update
        sizes = [padded(lengths, group) for group in update]
        for group, size in zip(update, sizes, strict=True):
            assert size <= group_budget or len(group) == 1
        assert sum(sizes) <= budgets.tokens_per_update or len(update) == 1
    # No update could have held the next group.
    for update, following in pairwise(plan):
        used = sum(padded(lengths, group) for group in update)
        assert used + padded(lengths, following[0]) > budgets.tokens_per_update
    np.random.seed(1)  # a global generator must not matter
    assert plain(updates(lengths.copy(), budgets, **place)) == plain(plan)


@given(LENGTHS, BUDGETS, PLACES, st.integers(1, 100))
@FAST
def test_max_tokens_splits_groups_and_changes_no_update(lengths, budgets, place, max_tokens):
    for update in updates(lengths, budgets, **place):
        batches = list(split_groups(lengths, update, max_tokens))
        for batch in batches:
            assert padded(lengths, batch) <= max_tokens or len(batch) == 1
        together = np.concatenate(batches).tolist()
        assert together == np.concatenate(update).tolist()


def test_small_budgets_are_split_as_evenly_as_larger_ones():
    lengths = np.ones((2, 100), np.int32)
    for max_tokens in range(1, 70):
        sizes = [len(batch) for batch in split_groups(lengths, [np.arange(100)], max_tokens)]
        assert len(sizes) == math.ceil(100 / max_tokens)
        assert max(sizes) <= max_tokens
        assert max(sizes) - math.ceil(100 / len(sizes)) <= max(max_tokens // 32, 1)


def test_epochs_and_seeds_give_other_orders_and_other_groups():
    lengths = np.random.default_rng(1).integers(1, 12, (2, 300)).astype(np.int32)
    budgets = Batches(group_tokens=60, tokens_per_update=200)
    first = plain(updates(lengths, budgets, seed=1, epoch=0))
    for seed, epoch in ((1, 1), (2, 0), (2, 1)):
        varied = plain(updates(lengths, budgets, seed=seed, epoch=epoch))
        assert varied != first
        groups = {tuple(sorted(group)) for update in varied for group in update}
        before = {tuple(sorted(group)) for update in first for group in update}
        assert len(groups & before) < len(before) / 2


@given(LENGTHS, st.integers(1, 300), st.randoms(use_true_random=False))
@FAST
def test_runs_equal_those_of_a_simple_loop(lengths, budget, random):
    longer = lengths.max(axis=0)
    order = np.array(random.sample(range(len(longer)), len(longer)))
    runs: list[list[int]] = []
    for index in order.tolist():
        run = [*runs[-1], index] if runs else []
        if not run or len(run) * max(longer[run]) > budget:
            runs.append([index])
        else:
            runs[-1] = run
    assert [run.tolist() for run in cut_by_tokens(longer, order, budget)] == runs


def test_sorted_by_target_then_source_then_the_order_given():
    lengths = np.array([[5, 4, 4, 1, 4], [2, 2, 2, 3, 1]], dtype=np.int32)
    assert sort_by_length(lengths).tolist() == [4, 1, 2, 0, 3]
    assert sort_by_length(lengths, np.array([3, 2, 1, 0, 4])).tolist() == [4, 2, 1, 0, 3]


def test_a_batch_by_hand(make_corpus):
    source, target = [[9, 1], [5, 6, 7, 1], [4, 1]], [[3, 4, 1], [8, 1], [2, 2, 2, 1]]
    pairs = ParallelCorpus(make_corpus(source), make_corpus(target))
    batch = read_batch(pairs, np.array([1, 0]))
    assert batch.source.tolist() == [[5, 6, 7, 1], [9, 1, 0, 0]]
    assert batch.target_input.tolist() == [[1, 8, 0], [1, 3, 4]]
    assert batch.target_output.tolist() == [[8, 1, 0], [3, 4, 1]]
    assert (batch.target_tokens, batch.real_tokens, batch.padded_tokens) == (5, 11, 14)
    assert pad_batch([np.array([7]), np.array([8, 9])]).tolist() == [[7, 0], [8, 9]]
