"""What a training would do, checked and said without a write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from nmtdeep import checkpoint
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.build import build
from nmtdeep.training.launch import device_of, own_threads
from nmtdeep.training.loop import check, finished, nothing_to_do
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import preview_run
from nmtdeep.training.state import Progress
from nmtdeep.training.step import resolve_precision
from nmtdeep.training.summary import opening


def dry_run(
    recipe: Recipe,
    *,
    data: Path,
    out: Path | None,
    device: str = "auto",
    threads: int | None = None,
    processes: int = 1,
    overwrite: bool = False,
    verify: bool = True,
) -> Iterator[str]:
    """What `training.loop.train` would say before its first update, for the same arguments.

    It makes the same checks, but that the largest batch is not tried in memory.

    Args:
        out: run directory; None: a fresh one.

    Raises:
        UserError: as `training.loop.train`.
    """
    corpora = DataDirectory.open(data, verify=verify)
    place = device_of(device, rank=0, processes=processes)
    ranks = Ranks(0, processes, device=place)
    check(recipe, corpora, ranks)
    progress = Progress()
    changes: tuple[str, ...] = ()
    if out is not None:
        run = preview_run(out, recipe, corpora.pipeline, overwrite=overwrite)
        if not overwrite:
            progress, changes = run.progress(), run.changes
            _read(run.newest())
    if finished(recipe, progress):
        yield nothing_to_do(recipe, progress)
        return
    stage = recipe.at_stage(progress.stage)
    with torch.device("meta"):
        model = build(
            stage.model,
            source_types=len(corpora.pipeline.source.vocabulary),
            target_types=len(corpora.pipeline.target.vocabulary),
        )
    dtype = resolve_precision(stage.training.precision, place)
    with own_threads(threads or torch.get_num_threads(), processes):
        yield opening(stage, corpora, model, ranks, dtype, progress, recipe)
    yield from (f"changed: {change}" for change in changes)


def _read(newest: Path | None) -> None:
    """Read the weights and moments that a training would go on from, with their checksums."""
    for name in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        if newest and (name == checkpoint.MODEL or (newest / name).is_file()):
            checkpoint.read_tensors(newest / name)
