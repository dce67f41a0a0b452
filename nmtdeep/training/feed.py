"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch

from nmtdeep.data import batching
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.batching import Indices
from nmtdeep.data.capacity import SAMPLE, Capacity, capacities, fitting
from nmtdeep.data.parallel import prefetch
from nmtdeep.data.plan import BLOCK, SENTENCES, Groups, Plan, Window
from nmtdeep.data.position import Position
from nmtdeep.data.segmentation import DrawnCorpus, in_memory, segmented, segmenters
from nmtdeep.training.graphs import eager_because
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import START, Progress

# Updates that are ready before their turn.
AHEAD = 8


class NextUpdate(NamedTuple):
    """This rank's batches of the next update, the position after it, and seconds of waiting."""

    batches: RankBatches
    position: Position
    waited: float = 0.0


def upcoming(
    setup: Setup, progress: Progress, *, window: int = SENTENCES, block: int = BLOCK
) -> Iterator[NextUpdate]:
    """Updates after `progress`, epoch after epoch, prepared by a thread; see `prefetch`.

    Args:
        window, block: sentences of each, as in `Plan`.
    """

    def begin() -> None:
        if setup.device.type == "cuda":  # the current device belongs to a thread
            torch.cuda.set_device(setup.device)

    training = setup.recipe.training
    order = Plan(training.seed, training.batches, window, block)
    sides = segmenters(setup.data.pipeline, setup.recipe.text, seed=training.seed)
    stored = setup.training_corpora
    corpora = {name: partial(segmented, each, sides) for name, each in stored.items()}
    plan = partial(order.updates, corpora, mixture=training.mixture)

    def updates() -> Iterator[NextUpdate]:
        sizes = _capacities(plan(START), setup)
        for groups, position in plan(progress.position):
            yield NextUpdate(_read(groups, setup, sizes), position)

    with closing(prefetch(updates(), depth=AHEAD, begin=begin)) as feed:
        for update, waited in feed:
            yield update._replace(waited=waited)


def _divided(groups: list[Groups], setup: Setup) -> list[tuple[Window, Indices]]:
    """The batches of an update, of all ranks: sentences by their position in the window."""
    packed, ranks = setup.packed, setup.ranks.size
    return [
        (window, places)
        for window, sentences in map(_segmented, groups)
        for places in batching.batches_of_update(
            window.lengths, sentences, setup.max_tokens, packed=packed, ranks=ranks
        )
    ]


def _capacities(plan: Iterator[tuple[list[Groups], Position]], setup: Setup) -> list[Capacity]:
    """What batches are filled up to, a function of the first updates of the training; or none."""
    if eager_because(setup):
        return []
    batches = (
        window.lengths[:, places].astype(np.int64)
        for groups, _ in plan
        for window, places in _divided(groups, setup)
    )
    return capacities([*islice(batches, SAMPLE)])


def _read(groups: list[Groups], setup: Setup, sizes: Sequence[Capacity] = ()) -> RankBatches:
    """Read the batches of an update that are this rank's."""
    ranks, packed = setup.ranks, setup.packed
    batches = _divided(groups, setup)
    cells = [window.lengths[:, places] for window, places in batches]
    filled = [fitting(sizes, each.astype(np.int64)) for each in cells]
    padded = [
        sum(capacity.tokens)
        if capacity
        else int(each.sum() if packed else each.shape[1] * each.max(axis=1).sum())
        for each, capacity in zip(cells, filled, strict=True)
    ]
    owners = batching.assign_to_ranks(padded, ranks.size)
    mine = []
    for number, ((window, places), capacity) in enumerate(zip(batches, filled, strict=True)):
        if owners[number] == ranks.rank:
            indices = window.indices[places]
            batch = read_batch(window.corpus, indices, packed=packed, capacity=capacity)
            mine.append((number, batch.to(ranks.device)))
    return RankBatches(
        mine,
        target_tokens=sum(int(each[1].sum()) for each in cells),
        padded_tokens=sum(padded),
        real_tokens=sum(int(each.sum()) for each in cells),
    )


def _segmented(groups: Groups) -> Groups:
    """The groups with the subwords that are drawn for them, sorted by length; or as they are.

    Every rank draws for all of them, because their lengths decide which batches there are.
    """
    if not isinstance(groups.window.corpus.source, DrawnCorpus):
        return groups
    indices = np.sort(groups.window.indices[np.concatenate(groups.groups)])
    corpus = in_memory(groups.window.corpus, indices)
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    order = batching.sort_by_length(lengths)
    return Groups(Window(corpus, indices, lengths, []), [order])
