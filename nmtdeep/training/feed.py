"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data import batching
from nmtdeep.data.batch import Indices, RankBatches, read_batch
from nmtdeep.data.capacity import SAMPLE, Capacity, capacities, fitting
from nmtdeep.data.corpus import DataDirectory
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
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.state import START, Progress

# Updates that are ready before their turn.
AHEAD = 8


@dataclass(frozen=True)
class NextUpdate:
    """This rank's share of the next update, the position after it, and seconds of waiting."""

    share: RankBatches
    position: Position
    waited: float = 0.0


def upcoming(
    recipe: Recipe,
    data: DataDirectory,
    progress: Progress,
    ranks: Ranks = ALONE,
    *,
    window: int = SENTENCES,
    block: int = BLOCK,
) -> Iterator[NextUpdate]:
    """Updates after `progress`, epoch after epoch, prepared by a thread; see `prefetch`.

    Args:
        window, block: sentences of each, as of `Epoch`.
    """

    def begin() -> None:
        if ranks.device.type == "cuda":  # the current device belongs to a thread
            torch.cuda.set_device(ranks.device)

    walk = CorpusReader(recipe.training.seed, recipe.training.batches, window, block)
    plan = partial(_plan, recipe, data, walk=walk)

    def updates() -> Iterator[NextUpdate]:
        sizes = _capacities(plan(position=START), recipe, ranks)
        for parts, position in plan(position=progress.position):
            yield NextUpdate(_share(parts, recipe, ranks, sizes), position)

    with closing(prefetch(updates(), depth=AHEAD, begin=begin)) as feed:
        for update, waited in feed:
            yield replace(update, waited=waited)


def _plan(
    recipe: Recipe, data: DataDirectory, position: Position, walk: CorpusReader
) -> Iterator[tuple[list[GroupsOfWindow], Position]]:
    """The parts of each update, and the position after it; windows are planned in their turn."""
    sides = segmenters(data.pipeline, recipe.text, seed=recipe.training.seed)
    stored = {name: data.corpus(name) for name in data.training}
    corpora = {name: partial(segmented, each, sides) for name, each in stored.items()}
    places = by_corpus(position, data.training)
    if len(corpora) == 1:
        [(name, place)] = places.items()
        for part in walk.parts(corpora[name], place, "update"):
            yield [part], part.position
    drawn = position.drawn if isinstance(position, MixedPosition) else 0
    mixture = mixture_probabilities(recipe.training.mixture, stored)
    yield from walk.mixed(corpora, MixedPosition(drawn, places), mixture)


def _divided(
    parts: list[GroupsOfWindow], recipe: Recipe, ranks: Ranks
) -> list[tuple[GroupsOfWindow, Indices]]:
    """The batches of an update, of all ranks: sentences by their position in the window."""
    packed = recipe.uses_packing(ranks.device.type)
    limit = recipe.training.batches.limit(packed=packed)
    divide = partial(batching.batches_of_update, max_tokens=limit, packed=packed, ranks=ranks.size)
    return [
        (part, places)
        for part in map(_drawn, parts)
        for places in divide(part.window.lengths, part.groups)
    ]


def _capacities(
    plan: Iterator[tuple[list[GroupsOfWindow], Position]], recipe: Recipe, ranks: Ranks
) -> list[Capacity]:
    """What batches are filled up to, a function of the first updates of the training; or none."""
    if eager_because(recipe, ranks.device):
        return []
    batches = (
        part.window.lengths[:, places].astype(np.int64)
        for parts, _ in plan
        for part, places in _divided(parts, recipe, ranks)
    )
    return capacities([*islice(batches, SAMPLE)])


def _share(
    parts: list[GroupsOfWindow], recipe: Recipe, ranks: Ranks, sizes: Sequence[Capacity] = ()
) -> RankBatches:
    """Read the batches of an update that are this rank's."""
    packed = recipe.uses_packing(ranks.device.type)
    batches = _divided(parts, recipe, ranks)
    cells = [part.window.lengths[:, places] for part, places in batches]
    filled = [fitting(sizes, each.astype(np.int64)) for each in cells]
    padded = [
        sum(capacity.tokens)
        if capacity
        else int(each.sum() if packed else each.shape[1] * each.max(axis=1).sum())
        for each, capacity in zip(cells, filled, strict=True)
    ]
    owners = batching.assign_to_ranks(padded, ranks.size)
    read = partial(read_batch, packed=packed)
    mine = [
        (
            number,
            read(part.corpus, part.window.indices[places], capacity=capacity).to(ranks.device),
        )
        for number, ((part, places), capacity) in enumerate(zip(batches, filled, strict=True))
        if owners[number] == ranks.rank
    ]
    return RankBatches(
        mine,
        target_tokens=sum(int(each[1].sum()) for each in cells),
        padded_tokens=sum(padded),
        real_tokens=sum(int(each.sum()) for each in cells),
        passes=max(map(owners.count, range(ranks.size))),
    )


def _drawn(part: GroupsOfWindow) -> GroupsOfWindow:
    """The sentences of `part` as they are drawn, sorted by their lengths; `part` if none are.

    Every rank draws all of them, because their lengths decide which batches there are.
    """
    if not isinstance(part.corpus.source, DrawnCorpus):
        return part
    indices = np.sort(part.window.indices[np.concatenate(part.groups)])
    corpus = in_memory(part.corpus, indices)
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    order = batching.sort_by_length(lengths)
    return replace(part, corpus=corpus, window=Window(indices, lengths, []), groups=[order])
