"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np
import torch

from nmtdeep.config import Recipe
from nmtdeep.config.render import differences
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.ahead import ahead
from nmtdeep.data.batching import Indices, Share
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.data.windows import Epoch, Place, Window
from nmtdeep.errors import UserError
from nmtdeep.training.distributed import Crew
from nmtdeep.training.state import Progress

# Updates that are ready before their turn.
AHEAD = 8


@dataclass(frozen=True)
class Upcoming:
    """This process's share of the next update, the place behind it, and seconds of waiting."""

    share: Share
    place: Place
    waited: float = 0.0


def upcoming(
    recipe: Recipe,
    data: DataDirectory,
    run: Path,
    progress: Progress,
    device: torch.device,
    crew: Crew,
) -> Iterator[Upcoming]:
    """Updates from `progress` on, epoch after epoch, prepared ahead of time; see `ahead`."""
    leaving = Event()

    def begin() -> None:
        if device.type == "cuda":  # a thread has its own idea of which one is meant
            torch.cuda.set_device(device)

    updates = _updates(recipe, data, run, progress.place, device, crew, leaving)
    feed = ahead(updates, depth=AHEAD, begin=begin)
    try:
        for one, waited in feed:
            yield replace(one, waited=waited)
    finally:
        leaving.set()  # first, for the thread may be in the middle of a long segmentation
        feed.close()


def _updates(
    recipe: Recipe,
    data: DataDirectory,
    run: Path,
    place: Place,
    device: torch.device,
    crew: Crew,
    leaving: Event,
) -> Iterator[Upcoming]:
    """Window after window, each planned when its turn comes."""
    settings = recipe.training.batches
    while True:
        directory = run / "bpe_dropout" / str(crew.rank)
        corpus = _epoch_corpus(recipe, data, directory, place.epoch, leaving)
        epoch = Epoch(corpus, recipe.training.seed, place.epoch)
        done, before = place.next_in_epoch, place.before_window
        for number in range(place.window, len(epoch)):
            window = epoch.window(
                number,
                group_tokens=settings.group_tokens,
                tokens_per_update=settings.tokens_per_update,
            )
            batching.check_budget(window.longest, max_tokens=settings.max_tokens)
            count = len(window.updates)
            for groups in window.updates[done - before :]:
                done += 1
                yield Upcoming(
                    _share(corpus, window, groups, settings.max_tokens, device, crew),
                    epoch.turned(Place(epoch.number, done, number, before), count),
                )
            before += count
        place = Place(epoch.number + 1)


def _share(
    corpus: ParallelCorpus,
    window: Window,
    groups: list[Indices],
    max_tokens: int,
    device: torch.device,
    crew: Crew,
) -> Share:
    """Read the batches of an update that are this process's."""
    lengths = window.lengths
    batches = list(batching.split(lengths, groups, max_tokens))
    sizes = [len(places) * int(lengths[:, places].max(axis=1).sum()) for places in batches]
    owners = batching.deal(sizes, crew.size)
    everything = np.concatenate(batches)
    return Share(
        [
            (number, batching.collate(corpus, window.indices[places]).to(device))
            for number, (places, owner) in enumerate(zip(batches, owners, strict=True))
            if owner == crew.rank
        ],
        target_tokens=int(lengths[1, everything].sum()),
        padded_tokens=sum(sizes),
        real_tokens=int(lengths[:, everything].sum()),
        passes=max(map(owners.count, range(crew.size))),
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


def check_batches(recipe: Recipe, data: DataDirectory, processes: int) -> None:
    """Every sentence must fit on a device, and every process have a batch, in every stage.

    Raises:
        UserError: naming the sentence, or the largest `max_tokens` that gives enough batches.
    """
    longest = data.longest("train")
    for number in range(len(recipe.training.stages) or 1):
        batches = recipe.at_stage(number).training.batches
        batching.check_budget(longest, max_tokens=batches.max_tokens)
        at_once = min(batches.max_tokens, batches.group_tokens, batches.tokens_per_update)
        if -(-batches.tokens_per_update // at_once) < processes:
            raise UserError(
                f"updates of {batches.tokens_per_update} tokens in batches of {at_once} leave some "
                f"of {processes} processes idle: give --max-tokens "
                f"{-(-batches.tokens_per_update // processes)} or fewer --processes"
            )


def check_text(recipe: Recipe, data: DataDirectory) -> None:
    """The corpus must have been made as the recipe says; only how much BPE-dropout is free.

    Raises:
        UserError: naming every key that differs.
    """
    if not len(data.corpus("train")):
        raise UserError(f"{data.path} has no training sentences: preprocess again")
    stored, wanted = data.pipeline.config.model_dump(), recipe.text.model_dump()
    if wanted["bpe"].get("dropout") and not stored["bpe"].get("dropout", 0):
        raise UserError(
            f"{data.path} was preprocessed without text.bpe.dropout, so that its vocabulary lacks "
            "pieces: preprocess again with this recipe, or give text.bpe.dropout=0"
        )
    changes = differences(stored, wanted, "text")
    changes = [one for one in changes if not one.startswith("text.bpe.dropout:")]
    if changes:
        raise UserError(
            f"{data.path} was preprocessed with another recipe ({'; '.join(changes)}): preprocess "
            "again with this recipe, or give the values that the corpus was made with"
        )
