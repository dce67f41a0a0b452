"""The batches of each update, from a position in the data on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import numpy as np
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.ahead import ahead
from nmtdeep.data.batching import Indices, Share
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.data.windows import BLOCK, SENTENCES, DataPosition, Epoch, Window
from nmtdeep.errors import UserError
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
    settings = recipe.training.batches
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
            batching.check_budget(window.longest, max_tokens=settings.max_tokens)
            count = len(window.updates)
            for groups in window.updates[done - before :]:
                done += 1
                yield Upcoming(
                    _share(corpus, window, groups, settings.max_tokens, ranks),
                    epoch.turned(DataPosition(epoch.number, done, number, before), count),
                )
            before += count
        position = DataPosition(epoch.number + 1)


def _share(
    corpus: ParallelCorpus, window: Window, groups: list[Indices], max_tokens: int, ranks: Ranks
) -> Share:
    """Read the batches of an update that are this rank's."""
    lengths = window.lengths
    batches = list(batching.split(lengths, groups, max_tokens))
    sizes = [len(places) * int(lengths[:, places].max(axis=1).sum()) for places in batches]
    owners = batching.deal(sizes, ranks.size)
    everything = np.concatenate(batches)
    return Share(
        [
            (number, batching.collate(corpus, window.indices[places]).to(ranks.device))
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


def check_batches(recipe: Recipe, data: DataDirectory, ranks: int) -> None:
    """Check that every sentence fits in a batch, and that every rank has one, in every stage.

    Raises:
        UserError: naming the sentence, or the largest `max_tokens` that makes enough batches; or if
            one rank is to share a model.
    """
    if recipe.training.sharding == "full" and ranks == 1:
        raise UserError(
            "full spreads a model over several processes",
            where="training.sharding",
            hint="pass --processes, start with torchrun, or set training.sharding=none",
        )
    longest = data.corpus("train").longest()
    for number in range(len(recipe.training.stages) or 1):
        batches = recipe.at_stage(number).training.batches
        batching.check_budget(longest, max_tokens=batches.max_tokens)
        at_once = min(batches.max_tokens, batches.group_tokens, batches.tokens_per_update)
        if -(-batches.tokens_per_update // at_once) < ranks:
            raise UserError(
                f"updates of {batches.tokens_per_update} tokens in batches of {at_once} leave some "
                f"of {ranks} processes idle",
                hint=f"pass --max-tokens {-(-batches.tokens_per_update // ranks)} or fewer "
                "--processes",
            )


def check_text(recipe: Recipe, data: DataDirectory) -> None:
    """Check that the corpus was made as the recipe says.

    Only the rate of BPE-dropout may differ. Without any, the vocabulary would lack pieces.

    Raises:
        UserError: naming every key that differs.
    """
    if not len(data.corpus("train")):
        raise UserError("no training sentences", where=data.path, hint="preprocess again")
    stored, wanted = data.pipeline.config.model_dump(), recipe.text.model_dump()
    free = "text.bpe.dropout:" if stored["bpe"].get("dropout") else ()
    changes = [key for key in differences(stored, wanted, "text") if not key.startswith(free)]
    if changes:
        raise UserError(
            f"was preprocessed with another recipe ({'; '.join(changes)})",
            where=data.path,
            hint="preprocess again with this recipe, or set the values that the corpus was made "
            "with",
        )
