"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch

from nmtdeep.data import batching
from nmtdeep.data.batch import Indices, RankBatches, read_batch
from nmtdeep.data.capacity import SAMPLE, Capacity, capacities, fitting
from nmtdeep.data.mixture import (
    CorpusReader,
    GroupsOfWindow,
    MixedPosition,
    Position,
    by_corpus,
    mixture_probabilities,
)
from nmtdeep.data.prefetch import prefetch
from nmtdeep.data.segmentation import DrawnCorpus, in_memory, segmented, segmenters
from nmtdeep.data.windows import BLOCK, SENTENCES, Window
from nmtdeep.training.graphs import eager_because
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import START, Progress

# Updates that are ready before their turn.
AHEAD = 8


@dataclass(frozen=True)
class NextUpdate:
    """This rank's batches of the next update, the position after it, and seconds of waiting."""

    batches: RankBatches
    position: Position
    waited: float = 0.0


def upcoming(
    setup: Setup, progress: Progress, *, window: int = SENTENCES, block: int = BLOCK
) -> Iterator[NextUpdate]:
    """Updates after `progress`, epoch after epoch, prepared by a thread; see `prefetch`.

    Args:
        window, block: sentences of each, as of `Epoch`.
    """

    def begin() -> None:
        if setup.device.type == "cuda":  # the current device belongs to a thread
            torch.cuda.set_device(setup.device)

    training = setup.recipe.training
    reader = CorpusReader(training.seed, training.batches, window, block)

    def updates() -> Iterator[NextUpdate]:
        sizes = _capacities(_plan(setup, START, reader), setup)
        for groups, position in _plan(setup, progress.position, reader):
            yield NextUpdate(_read(groups, setup, sizes), position)

    with closing(prefetch(updates(), depth=AHEAD, begin=begin)) as feed:
        for update, waited in feed:
            yield replace(update, waited=waited)


def _plan(
    setup: Setup, position: Position, reader: CorpusReader
) -> Iterator[tuple[list[GroupsOfWindow], Position]]:
    """The groups of each update, and the position after it; windows are planned in their turn."""
    training, stored = setup.recipe.training, setup.training_corpora
    sides = segmenters(setup.data.pipeline, setup.recipe.text, seed=training.seed)
    corpora = {name: partial(segmented, each, sides) for name, each in stored.items()}
    places = by_corpus(position, setup.data.training)
    if len(corpora) == 1:
        [(name, place)] = places.items()
        for groups in reader.parts(corpora[name], place, "update"):
            yield [groups], groups.position
    groups_done = position.drawn if isinstance(position, MixedPosition) else 0
    mixture = mixture_probabilities(training.mixture, stored)
    yield from reader.mixed(corpora, MixedPosition(groups_done, places), mixture)


def _divided(groups: list[GroupsOfWindow], setup: Setup) -> list[tuple[GroupsOfWindow, Indices]]:
    """The batches of an update, of all ranks: sentences by their position in the window."""
    return [
        (each, places)
        for each in map(_segmented, groups)
        for places in batching.batches_of_update(
            each.window.lengths,
            each.groups,
            setup.max_tokens,
            packed=setup.packed,
            ranks=setup.ranks.size,
        )
    ]


def _capacities(
    plan: Iterator[tuple[list[GroupsOfWindow], Position]], setup: Setup
) -> list[Capacity]:
    """What batches are filled up to, a function of the first updates of the training; or none."""
    if eager_because(setup):
        return []
    batches = (
        each.window.lengths[:, places].astype(np.int64)
        for groups, _ in plan
        for each, places in _divided(groups, setup)
    )
    return capacities([*islice(batches, SAMPLE)])


def _read(
    groups: list[GroupsOfWindow], setup: Setup, sizes: Sequence[Capacity] = ()
) -> RankBatches:
    """Read the batches of an update that are this rank's."""
    ranks, packed = setup.ranks, setup.packed
    batches = _divided(groups, setup)
    cells = [each.window.lengths[:, places] for each, places in batches]
    filled = [fitting(sizes, each.astype(np.int64)) for each in cells]
    padded = [
        sum(capacity.tokens)
        if capacity
        else int(each.sum() if packed else each.shape[1] * each.max(axis=1).sum())
        for each, capacity in zip(cells, filled, strict=True)
    ]
    owners = batching.assign_to_ranks(padded, ranks.size)
    mine = []
    for number, ((each, places), capacity) in enumerate(zip(batches, filled, strict=True)):
        if owners[number] == ranks.rank:
            indices = each.window.indices[places]
            batch = read_batch(each.corpus, indices, packed=packed, capacity=capacity)
            mine.append((number, batch.to(ranks.device)))
    return RankBatches(
        mine,
        target_tokens=sum(int(each[1].sum()) for each in cells),
        padded_tokens=sum(padded),
        real_tokens=sum(int(each.sum()) for each in cells),
        passes=max(map(owners.count, range(ranks.size))),
    )


def _segmented(groups: GroupsOfWindow) -> GroupsOfWindow:
    """The groups with the subwords that are drawn for them, sorted by length; or as they are.

    Every rank draws for all of them, because their lengths decide which batches there are.
    """
    if not isinstance(groups.corpus.source, DrawnCorpus):
        return groups
    indices = np.sort(groups.window.indices[np.concatenate(groups.groups)])
    corpus = in_memory(groups.corpus, indices)
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    order = batching.sort_by_length(lengths)
    return replace(groups, corpus=corpus, window=Window(indices, lengths, []), groups=[order])
