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
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.batching import Indices
from nmtdeep.data.capacity import SAMPLE, Capacity, capacities, fitting
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.parallel import prefetch
from nmtdeep.data.plan import BLOCK, SENTENCES, Groups, Plan, Window
from nmtdeep.data.position import Position
from nmtdeep.data.segmentation import DrawnCorpus, in_memory, segmented, segmenters
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
        window, block: sentences of each, as in `Plan`.
    """

    def begin() -> None:
        if ranks.device.type == "cuda":  # the current device belongs to a thread
            torch.cuda.set_device(ranks.device)

    order = Plan(recipe.training.seed, recipe.training.batches, window, block)
    sides = segmenters(data.pipeline, recipe.text, seed=recipe.training.seed)
    corpora = {name: partial(segmented, data.corpus(name), sides) for name in data.training}
    plan = partial(order.updates, corpora, mixture=recipe.training.mixture)

    def updates() -> Iterator[NextUpdate]:
        sizes = _capacities(plan(START), recipe, ranks)
        for parts, position in plan(progress.position):
            yield NextUpdate(_share(parts, recipe, ranks, sizes), position)

    with closing(prefetch(updates(), depth=AHEAD, begin=begin)) as feed:
        for update, waited in feed:
            yield replace(update, waited=waited)


def _divided(parts: list[Groups], recipe: Recipe, ranks: Ranks) -> list[tuple[Window, Indices]]:
    """The batches of an update, of all ranks: sentences by their position in the window."""
    packed = recipe.uses_packing(ranks.device.type)
    limit = recipe.training.batches.limit(packed=packed)
    divide = partial(batching.batches_of_update, max_tokens=limit, packed=packed, ranks=ranks.size)
    return [
        (window, places)
        for window, groups in map(_drawn, parts)
        for places in divide(window.lengths, groups)
    ]


def _capacities(
    plan: Iterator[tuple[list[Groups], Position]], recipe: Recipe, ranks: Ranks
) -> list[Capacity]:
    """What batches are filled up to, a function of the first updates of the training; or none."""
    if eager_because(recipe, ranks.device):
        return []
    batches = (
        window.lengths[:, places].astype(np.int64)
        for parts, _ in plan
        for window, places in _divided(parts, recipe, ranks)
    )
    return capacities([*islice(batches, SAMPLE)])


def _share(
    parts: list[Groups], recipe: Recipe, ranks: Ranks, sizes: Sequence[Capacity] = ()
) -> RankBatches:
    """Read the batches of an update that are this rank's."""
    packed = recipe.uses_packing(ranks.device.type)
    batches = _divided(parts, recipe, ranks)
    cells = [window.lengths[:, places] for window, places in batches]
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
            read(window.corpus, window.indices[places], capacity=capacity).to(ranks.device),
        )
        for number, ((window, places), capacity) in enumerate(zip(batches, filled, strict=True))
        if owners[number] == ranks.rank
    ]
    return RankBatches(
        mine,
        target_tokens=sum(int(each[1].sum()) for each in cells),
        padded_tokens=sum(padded),
        real_tokens=sum(int(each.sum()) for each in cells),
        max_batches_of_a_rank=max(map(owners.count, range(ranks.size))),
    )


def _drawn(part: Groups) -> Groups:
    """The sentences of `part` as they are drawn, sorted by their lengths; `part` if none are.

    Every rank draws all of them, because their lengths decide which batches there are.
    """
    if not isinstance(part.window.corpus.source, DrawnCorpus):
        return part
    indices = np.sort(part.window.indices[np.concatenate(part.groups)])
    corpus = in_memory(part.window.corpus, indices)
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    order = batching.sort_by_length(lengths)
    return Groups(Window(corpus, indices, lengths, []), [order])
