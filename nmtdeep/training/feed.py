"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event

import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.ahead import ahead
from nmtdeep.data.batch import Share, read
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.data.mixture import MixedPosition, Part, Position, Walk, by_corpus, shares
from nmtdeep.data.windows import BLOCK, SENTENCES
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.state import Progress

# Updates that are ready before their turn.
AHEAD = 8


@dataclass(frozen=True)
class Upcoming:
    """This rank's share of the next update, the position after it, and seconds of waiting."""

    share: Share
    position: Position
    waited: float = 0.0


def upcoming(
    recipe: Recipe,
    data: DataDirectory,
    run: Path,
    progress: Progress,
    ranks: Ranks = ALONE,
    *,
    window: int = SENTENCES,
    block: int = BLOCK,
) -> Iterator[Upcoming]:
    """Updates after `progress`, epoch after epoch, prepared by a thread; see `ahead`.

    Args:
        run: run directory, which gets the segmentations of BPE-dropout.
        window, block: sentences of each, as of `Epoch`.
    """
    leaving = Event()

    def begin() -> None:
        if ranks.device.type == "cuda":  # the current device belongs to a thread
            torch.cuda.set_device(ranks.device)

    folder = run / "bpe_dropout" / str(ranks.rank)
    plan = _plan(recipe, data, folder, progress.position, ranks, leaving, (window, block))
    updates = (Upcoming(_share(parts, recipe, ranks), position) for parts, position in plan)
    feed = ahead(updates, depth=AHEAD, begin=begin)
    try:
        for update, waited in feed:
            yield replace(update, waited=waited)
    finally:
        leaving.set()  # first, because the thread may be in the middle of a long segmentation
        feed.close()


def _plan(
    recipe: Recipe,
    data: DataDirectory,
    folder: Path,
    position: Position,
    ranks: Ranks,
    leaving: Event,
    sizes: tuple[int, int],
) -> Iterator[tuple[list[Part], Position]]:
    """The parts of each update, and the position after it; windows are planned in their turn."""
    settings = recipe.training.batches
    limit = settings.limit(rows=recipe.uses_rows(ranks.device.type))
    walk = Walk(recipe.training.seed, settings, limit, *sizes)
    corpora = {
        name: partial(_epoch_corpus, recipe, data, name, folder / name, leaving)
        for name in data.training
    }
    places = by_corpus(position, data.training)
    if len(corpora) == 1:
        [(name, place)] = places.items()
        for part in walk.updates(corpora[name], place):
            yield [part], part.position
    drawn = position.drawn if isinstance(position, MixedPosition) else 0
    mixture = shares(recipe.training.mixture, {name: data.corpus(name) for name in data.training})
    yield from walk.mixed(corpora, MixedPosition(drawn, places), mixture)


def _share(parts: list[Part], recipe: Recipe, ranks: Ranks) -> Share:
    """Read the batches of an update that are this rank's."""
    rows = recipe.uses_rows(ranks.device.type)
    limit = recipe.training.batches.limit(rows=rows)
    batches = [
        (part, places)
        for part in parts
        for places in batching.divide(
            part.window.lengths, part.groups, limit, rows=rows, ranks=ranks.size
        )
    ]
    cells = [part.window.lengths[:, places] for part, places in batches]
    sizes = [int(each.sum() if rows else each.shape[1] * each.max(axis=1).sum()) for each in cells]
    owners = batching.deal(sizes, ranks.size)
    return Share(
        [
            (number, read(part.corpus, part.window.indices[places], rows=rows).to(ranks.device))
            for number, ((part, places), owner) in enumerate(zip(batches, owners, strict=True))
            if owner == ranks.rank
        ],
        target_tokens=sum(int(each[1].sum()) for each in cells),
        padded_tokens=sum(sizes),
        real_tokens=sum(int(each.sum()) for each in cells),
        passes=max(map(owners.count, range(ranks.size))),
    )


def _epoch_corpus(
    recipe: Recipe, data: DataDirectory, name: str, directory: Path, leaving: Event, epoch: int
) -> ParallelCorpus:
    """A training corpus; under BPE-dropout another segmentation each epoch."""
    corpus = data.corpus(name)
    dropout = getattr(recipe.text.bpe, "dropout", 0.0)
    if not dropout:
        return corpus
    for path in directory.glob("epoch-*"):  # of the epoch before, or of a training cut short
        path.unlink()
    return bpe_dropout.resample(
        corpus,
        data.pipeline,
        dropout=dropout,
        seed=recipe.training.seed,
        epoch=epoch,
        directory=directory,
        leaving=leaving.is_set,
    )
