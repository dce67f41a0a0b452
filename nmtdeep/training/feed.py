"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.ahead import ahead
from nmtdeep.data.batch import Indices, Share, read
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.data.windows import BLOCK, SENTENCES, DataPosition, Epoch, Window
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.state import Progress

# Updates that are ready before their turn.
AHEAD = 8


@dataclass(frozen=True)
class Upcoming:
    """This rank's share of the next update, the position after it, and seconds of waiting."""

    share: Share
    position: DataPosition
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
    sizes = (window, block)
    updates = _updates(recipe, data, folder, progress.position, ranks, leaving, sizes)
    feed = ahead(updates, depth=AHEAD, begin=begin)
    try:
        for update, waited in feed:
            yield replace(update, waited=waited)
    finally:
        leaving.set()  # first, because the thread may be in the middle of a long segmentation
        feed.close()


def _updates(
    recipe: Recipe,
    data: DataDirectory,
    folder: Path,
    position: DataPosition,
    ranks: Ranks,
    leaving: Event,
    sizes: tuple[int, int],
) -> Iterator[Upcoming]:
    """Window after window, each planned when its turn comes."""
    settings, rows = recipe.training.batches, recipe.uses_rows(ranks.device.type)
    while True:
        corpus = _epoch_corpus(recipe, data, folder, position.epoch, leaving)
        epoch = Epoch(corpus, recipe.training.seed, position.epoch, *sizes)
        done, before = position.next_in_epoch, position.before_window
        for number in range(position.window, len(epoch)):
            window = epoch.window(
                number,
                group_tokens=settings.group_tokens,
                tokens_per_update=settings.tokens_per_update,
            )
            limit = settings.limit(rows=rows)
            batching.check_budget(window.longest, max_tokens=limit)
            count = len(window.updates)
            for groups in window.updates[done - before :]:
                done += 1
                yield Upcoming(
                    _share(corpus, window, groups, limit, rows, ranks),
                    epoch.turned(DataPosition(epoch.number, done, number, before), count),
                )
            before += count
        position = DataPosition(epoch.number + 1)


def _share(
    corpus: ParallelCorpus,
    window: Window,
    groups: list[Indices],
    max_tokens: int,
    rows: bool,
    ranks: Ranks,
) -> Share:
    """Read the batches of an update that are this rank's."""
    lengths = window.lengths
    batches = batching.divide(lengths, groups, max_tokens, rows=rows, ranks=ranks.size)
    cells = [lengths[:, places] for places in batches]
    sizes = [int(part.sum() if rows else part.shape[1] * part.max(axis=1).sum()) for part in cells]
    owners = batching.deal(sizes, ranks.size)
    everything = np.concatenate(batches)
    return Share(
        [
            (number, read(corpus, window.indices[places], rows=rows).to(ranks.device))
            for number, (places, owner) in enumerate(zip(batches, owners, strict=True))
            if owner == ranks.rank
        ],
        target_tokens=int(lengths[1, everything].sum()),
        padded_tokens=sum(sizes),
        real_tokens=int(lengths[:, everything].sum()),
        passes=max(map(owners.count, range(ranks.size))),
    )


def _epoch_corpus(
    recipe: Recipe, data: DataDirectory, directory: Path, epoch: int, leaving: Event
) -> ParallelCorpus:
    """The training corpus; under BPE-dropout another segmentation each epoch."""
    corpus = data.corpus("train")
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
