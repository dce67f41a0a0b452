"""The batches of each update, from a position in the data on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from nmtdeep.config import Recipe
from nmtdeep.config.compare import differences
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.batching import Batch
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.errors import UserError
from nmtdeep.training.state import Progress


@dataclass(frozen=True)
class Upcoming:
    """The batches of the next update and the position after it."""

    batches: list[Batch]
    epoch: int
    next_in_epoch: int
    waited: float


def upcoming(
    recipe: Recipe, data: DataDirectory, run: Path, progress: Progress, device: torch.device
) -> Iterator[Upcoming]:
    """Updates from `progress` on, epoch after epoch."""
    settings = recipe.training
    epoch, first = progress.epoch, progress.next_in_epoch
    while True:
        corpus = _epoch_corpus(recipe, data, run, epoch)
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
            batches = [
                batching.collate(corpus, indices).to(device)
                for indices in batching.split(lengths, plan[number], settings.batches.max_tokens)
            ]
            last = number + 1 == len(plan)
            yield Upcoming(
                batches,
                epoch + 1 if last else epoch,
                0 if last else number + 1,
                time.perf_counter() - began,
            )
        epoch, first = epoch + 1, 0


def _epoch_corpus(recipe: Recipe, data: DataDirectory, run: Path, epoch: int) -> ParallelCorpus:
    """The training corpus; under BPE-dropout another segmentation each epoch."""
    corpus = data.corpus("train")
    dropout = getattr(recipe.text.bpe, "dropout", 0.0)
    if not dropout:
        return corpus
    directory = run / "bpe_dropout"
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
