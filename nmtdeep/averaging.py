"""Checkpoint averaging: the mean of the weights of several checkpoints of one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtdeep import checkpoint, files
from nmtdeep.config.render import differences
from nmtdeep.errors import CheckpointError, UserError


def choose(run: Path, count: int, *, best: bool = False) -> list[Path]:
    """The newest planned checkpoints of a run, or those with the best scores, the best first.

    Raises:
        UserError: if there are fewer than `count`.
    """
    if not run.is_dir():
        raise CheckpointError("no such run directory", where=run, hint="check the path")
    saved = list(checkpoint.saved(run).values())
    files.check_entries(run, saved)
    planned = [path for path in saved if checkpoint.is_planned(checkpoint.read_state(path))]
    chosen, kind = planned[-count:], "checkpoints"
    if best:
        scores: dict[Path, Any] = {path: checkpoint.read_state(path).get("score") for path in saved}
        validated = [path for path in saved if scores[path] is not None]
        validated.sort(key=lambda path: scores[path], reverse=True)
        chosen, kind = validated[:count], "validated checkpoints"
    if len(chosen) < count:
        raise CheckpointError(
            f"has {len(chosen)} {kind}, not {count}",
            where=run,
            hint="average fewer, or train with more training.checkpoints.keep_last or keep_best",
        )
    return chosen


def average(inputs: Sequence[Path], out: Path) -> Path:
    """Write the arithmetic mean, computed in float64, of the inputs' weights to `out`.

    Raises:
        UserError: if an input is damaged, has the weights of another, or is of another model,
            vocabulary or recipe than the first; if `out` is one of them.
    """
    if not inputs:
        raise UserError("no checkpoints to average", hint="name at least one")
    if out.resolve() in [checkpoint.locate(path) for path in inputs]:
        raise UserError("one of the inputs", where=out, hint="choose another --output")
    first = checkpoint.load(inputs[0])
    sums: dict[str, Tensor] = {}
    paths: dict[str, Path] = {}
    for path in inputs:
        loaded = checkpoint.load(path)
        changed = differences(first.recipe.model.model_dump(), loaded.recipe.model.model_dump())
        if changed or loaded.pipeline.fingerprint() != first.pipeline.fingerprint():
            raise CheckpointError(
                f"not from the same run as {inputs[0]} "
                f"({changed[0] if changed else 'another vocabulary'})",
                where=path,
                hint="average checkpoints of one run",
            )
        digest = files.digest(loaded.path / checkpoint.MODEL)
        if digest in paths:
            raise CheckpointError(
                f"has the same weights as {paths[digest]}",
                where=path,
                hint="name each checkpoint once",
            )
        paths[digest] = path
        for name, tensor in checkpoint.weights(loaded.model).items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    sources = [{"checkpoint": path.name, "sha256": digest} for digest, path in paths.items()]
    checkpoint.save(
        out,
        tensors={name: (total / len(inputs)).float() for name, total in sums.items()},
        state={"kind": "average", "inputs": sources},
        recipe=first.recipe,
        pipeline=first.pipeline,
    )
    return out
