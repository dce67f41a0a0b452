"""Gradient norms over a training: each saved checkpoint is a point."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from nmtdeep import checkpoint
from nmtdeep.analysis.gradients import Curves, Of, curves, trained_curves
from nmtdeep.config.load import read_config
from nmtdeep.data.corpus import DataDirectory


def measured(
    name: str,
    path: Path,
    data: DataDirectory,
    *,
    tokens: int,
    device: torch.device,
    of: Of,
    most: int | None = None,
) -> Iterator[Curves]:
    """The gradients of a checkpoint; or of a run at its start and at every checkpoint it kept.

    All on the same sentences, in training mode, fp32 and with the dropout of the first update. A
    run that was grown from another has no start of its own; its first checkpoint stands for it.

    Args:
        most: of more checkpoints than these, so many at even distances; the last one is in.

    Raises:
        UserError: if there is no checkpoint, or it was trained on another vocabulary.
    """
    if (path / checkpoint.STATE).is_file() or not checkpoint.saved(path):
        found = [checkpoint.locate(path)]
    else:
        found = list(checkpoint.saved(path).values())
        checkpoint.check_entries(path, found)
        recipe = read_config(path / checkpoint.CONFIG)
        if not _is_grown(found[0], stages=bool(recipe.training.stages)):
            first = recipe.at_stage(0)
            yield curves(name, first, data, tokens=tokens, device=device, of=of)
    if most is not None and len(found) > most:
        found = [found[len(found) * place // most - 1] for place in range(1, most + 1)]
    for one in found:
        loaded = checkpoint.load(one)
        yield trained_curves(name, loaded, data, tokens=tokens, device=device, of=of)


def _is_grown(first: Path, *, stages: bool) -> bool:
    """Whether a run's first checkpoint goes back to another run's."""
    state = checkpoint.read_state(first)
    return not stages and bool(state.get("stage_update"))
