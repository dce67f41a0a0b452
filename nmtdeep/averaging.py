"""Checkpoint averaging: the mean of the weights of several checkpoints of one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmtdeep import checkpoint, files
from nmtdeep.config.render import differences
from nmtdeep.errors import CheckpointError, UserError


def newest(run: Path, count: int) -> list[Path]:
    """The `count` newest checkpoints of a run.

    Raises:
        CheckpointError: if there are fewer.
    """
    return _enough(run, list(_saved(run).values()), count)[-count:]


def best(run: Path, count: int) -> list[Path]:
    """The `count` checkpoints of a run with the best validation figures.

    Raises:
        CheckpointError: if fewer were validated.
    """
    scores = {
        path: score
        for path in _saved(run).values()
        if (score := checkpoint.read_state(path).get("score")) is not None
    }
    ranked = sorted(scores, key=lambda path: scores[path], reverse=True)
    return _enough(run, ranked, count, "validated ")[:count]


def _saved(run: Path) -> dict[int, Path]:
    if not run.is_dir():
        raise CheckpointError(f"{run}: no such run directory: check the path")
    found = checkpoint.saved(run)
    checkpoint.check_entries(run, found.values())
    return found


def _enough(run: Path, found: list[Path], count: int, kind: str = "") -> list[Path]:
    if len(found) < count:
        raise CheckpointError(
            f"{run} has {len(found)} {kind}checkpoints, {count} are wanted: ask for fewer, or "
            "train with a larger training.checkpoints.keep_last or keep_best"
        )
    return found


def average(inputs: Sequence[Path], out: Path) -> Path:
    """Write the arithmetic mean, computed in float64, of the inputs' weights to `out`.

    Raises:
        CheckpointError: if an input is foreign (another model, vocabulary or run's recipe), broken,
            or there twice.
    """
    if not inputs:
        raise UserError("nothing to average: name at least one checkpoint")
    _check_distinct(inputs)
    first = checkpoint.load(inputs[0])
    sums: dict[str, Tensor] = {}
    hashes: dict[str, Path] = {}
    for path in inputs:
        loaded = checkpoint.load(path)
        changed = differences(first.recipe.model.model_dump(), loaded.recipe.model.model_dump())
        if changed or loaded.pipeline.fingerprint() != first.pipeline.fingerprint():
            raise CheckpointError(
                f"{path} is foreign to {inputs[0]} "
                f"({changed[0] if changed else 'another vocabulary'}): average checkpoints of one "
                "run"
            )
        digest = files.digest(loaded.path / checkpoint.MODEL)
        if digest in hashes:
            raise CheckpointError(
                f"{path} and {hashes[digest]} hold the same weights: name each checkpoint once"
            )
        hashes[digest] = path
        for name, tensor in checkpoint.weights(loaded.model).items():
            sums[name] = sums.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
    checkpoint.save(
        out,
        tensors={name: (total / len(inputs)).float() for name, total in sums.items()},
        optimizer=None,
        state={
            "kind": "average",
            "inputs": [
                {"checkpoint": path.name, "sha256": digest} for digest, path in hashes.items()
            ],
        },
        recipe=first.recipe,
        pipeline=first.pipeline,
    )
    return out


def check_out(out: Path, inputs: Sequence[Path]) -> None:
    """Refuse to replace an input, or anything that is no checkpoint.

    Raises:
        UserError: naming `out`.
    """
    if not out.exists():
        return
    if not (out / checkpoint.STATE).is_file():
        raise UserError(f"{out} is no checkpoint and is not replaced: choose another --output")
    if out.resolve() in [checkpoint.locate(path) for path in inputs]:
        raise UserError(f"{out} is one of the inputs: choose another --output")


def _check_distinct(inputs: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for path in inputs:
        place = checkpoint.locate(path)
        if place in seen:
            raise CheckpointError(f"{path} is named twice: name each checkpoint once")
        seen.add(place)
