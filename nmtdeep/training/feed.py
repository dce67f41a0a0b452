"""The batches of each update, from a position in the data on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nmtdeep.config import Recipe
from nmtdeep.config.compare import differences
from nmtdeep.config.stages import at_stage
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.batching import Indices, Share
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.errors import UserError
from nmtdeep.training.distributed import Crew
from nmtdeep.training.state import Progress


@dataclass(frozen=True)
class Upcoming:
    """This process's share of the next update and the position after it."""

    share: Share
    epoch: int
    next_in_epoch: int
    waited: float


def upcoming(
    recipe: Recipe,
    data: DataDirectory,
    run: Path,
    progress: Progress,
    device: torch.device,
    crew: Crew,
) -> Iterator[Upcoming]:
    """Updates from `progress` on, epoch after epoch."""
    settings = recipe.training
    epoch, first = progress.epoch, progress.next_in_epoch
    while True:
        corpus = _epoch_corpus(recipe, data, run / "bpe_dropout" / str(crew.rank), epoch)
        lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
        batching.check_budget(lengths, max_tokens=settings.batches.max_tokens)
        plan = batching.updates(
            lengths,
            group_tokens=settings.batches.group_tokens,
            tokens_per_update=settings.batches.tokens_per_update,
            seed=settings.seed,
            epoch=epoch,
        )
        for number in range(first, len(plan)):
            began = time.perf_counter()
            batches = list(batching.split(lengths, plan[number], settings.batches.max_tokens))
            share = _share(corpus, lengths, batches, device, crew)
            last = number + 1 == len(plan)
            yield Upcoming(
                share,
                epoch + 1 if last else epoch,
                0 if last else number + 1,
                time.perf_counter() - began,
            )
        epoch, first = epoch + 1, 0


def _share(
    corpus: ParallelCorpus,
    lengths: NDArray[np.int32],
    batches: list[Indices],
    device: torch.device,
    crew: Crew,
) -> Share:
    """Read the batches that are this process's."""
    sizes = [len(indices) * int(lengths[:, indices].max(axis=1).sum()) for indices in batches]
    owners = batching.deal(sizes, crew.size)
    everything = np.concatenate(batches)
    return Share(
        [
            (number, batching.collate(corpus, indices).to(device))
            for number, (indices, owner) in enumerate(zip(batches, owners, strict=True))
            if owner == crew.rank
        ],
        target_tokens=int(lengths[1, everything].sum()),
        padded_tokens=sum(sizes),
        real_tokens=int(lengths[:, everything].sum()),
        passes=max(map(owners.count, range(crew.size))),
    )


def _epoch_corpus(
    recipe: Recipe, data: DataDirectory, directory: Path, epoch: int
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
    )


def check_batches(recipe: Recipe, data: DataDirectory, processes: int) -> None:
    """Every sentence must fit on a device, and every process have a batch, in every stage.

    Raises:
        UserError: naming the sentence, or the largest `max_tokens` that gives enough batches.
    """
    corpus = data.corpus("train")
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    for number in range(len(recipe.training.stages) or 1):
        batches = at_stage(recipe, number).training.batches
        batching.check_budget(lengths, max_tokens=batches.max_tokens)
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
