"""From sentence lengths to the updates of an epoch, by token budgets.

An *update* is one optimizer step: a list of *groups* of sentences of similar length. Which
sentences form an update depends on the recipe, the seed and the epoch only. How many of a group a
device takes at once (`max_tokens`) divides groups into batches: only dropout masks depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nmtdeep.config.training import Batches

Indices = NDArray[np.int64]


def sort_by_length(lengths: NDArray[np.int32], order: Indices | None = None) -> Indices:
    """Sentence numbers sorted by the last side's lengths, then by those before it.

    Args:
        lengths: `(sides, sentences)`.
        order: permutation that decides ties; None keeps the corpus order.
    """
    order = np.arange(lengths.shape[1]) if order is None else order
    return order[np.lexsort(lengths[:, order])]


def cut_by_tokens(lengths: NDArray[np.int32], order: Indices, budget: int) -> list[Indices]:
    """Cut `order` into runs whose count times longest length stays within `budget` tokens.

    `lengths` counts the longer side of each sentence. A sentence longer than the budget gets a run
    of its own.
    """
    ordered = lengths[order]
    runs, first = [], 0
    while first < len(order):
        most = max(budget // max(int(ordered[first]), 1), 1)
        longest = np.maximum.accumulate(ordered[first : first + most])
        sizes = longest * np.arange(1, len(longest) + 1)
        last = first + max(int(np.searchsorted(sizes, budget, side="right")), 1)
        runs.append(order[first:last])
        first = last
    return runs


def updates(
    lengths: NDArray[np.int32], batches: Batches, *, seed: int, epoch: int, window: int = 0
) -> list[list[Indices]]:
    """The updates of one window: every sentence once, in an order fixed by seed, epoch and window.

    Args:
        lengths: `(2, sentences)` source and target lengths, end of sentence included.
        batches: padded tokens (sentences times longer side) of a group and of an update, at most;
            an update has at least one group.
    """
    random = np.random.default_rng((seed, epoch, window))
    longer = lengths.max(axis=0)
    order = sort_by_length(lengths, random.permutation(lengths.shape[1]))
    groups = cut_by_tokens(longer, order, min(batches.group_tokens, batches.tokens_per_update))
    plan: list[list[Indices]] = []
    room = 0
    for number in random.permutation(len(groups)).tolist():
        group = groups[number]
        size = len(group) * int(longer[group].max())
        if not plan or size > room:
            plan.append([])
            room = batches.tokens_per_update
        plan[-1].append(group)
        room -= size
    return plan


def split_groups(
    lengths: NDArray[np.int32], groups: list[Indices], max_tokens: int
) -> Iterator[Indices]:
    """Divide an update's groups into batches that fit on a device, as evenly as possible.

    A group is divided into as few batches as the budget allows, then with the smallest budget that
    keeps their number.
    """
    for group in groups:
        longer = lengths[:, group].max(axis=0)
        places = np.arange(len(group))
        batches = cut_by_tokens(longer, places, max_tokens)
        fewest = len(batches)
        low, high = max_tokens // 2, max_tokens
        while fewest > 1 and high - low > max(max_tokens // 32, 1):
            budget = (low + high) // 2
            tighter = cut_by_tokens(longer, places, budget)
            if len(tighter) > fewest:
                low = budget
            else:
                batches, high = tighter, budget
        yield from (group[batch] for batch in batches)


def assign_to_ranks(sizes: Sequence[int], processes: int) -> list[int]:
    """The rank of each batch: the largest batch first, each for the rank with the least work."""
    loads = [0] * processes
    owners = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        owner = loads.index(min(loads))
        owners[number] = owner
        loads[owner] += sizes[number]
    return owners


def batches_of_update(
    lengths: NDArray[np.int32], groups: list[Indices], max_tokens: int, *, packed: bool, ranks: int
) -> list[Indices]:
    """The batches of an update.

    Args:
        max_tokens: of the longer side of a batch, padding included.
        packed: whether batches are packed, with sentences of all lengths; else see `split_groups`.
        ranks: number of ranks; packed, each gets as many batches.
    """
    if not packed:
        return list(split_groups(lengths, groups, max_tokens))
    everything = np.concatenate(groups)
    longer = lengths[:, everything]
    tokens = int(longer.sum(axis=1).max())
    count = min(-(-tokens // (max_tokens * ranks)) * ranks, len(everything))
    order = everything[np.argsort(-longer.max(axis=0), kind="stable")]
    return [order[first::count] for first in range(count)]
