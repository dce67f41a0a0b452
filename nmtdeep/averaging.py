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

# Keys of a recipe that no training changes on its way.
SAME = ("model.", "training.seed:", "training.start_from")
# In `state.json` of an average: the last update of its newest input.
NEWEST = "newest"


def choose(run: Path, count: int, *, best: bool = False) -> list[Path]:
    """The newest planned checkpoints of a run, or those with the best scores, the best first.

    Raises:
        UserError: if there are fewer than `count`.
    """
    if not run.is_dir():
        raise CheckpointError("no such run directory", where=run, hint="check the path")
    saved = list(checkpoint.saved(run).values())
    files.check_entries(run, saved)
    states = {path: checkpoint.read_state(path) for path in saved}
    planned = [path for path in saved if checkpoint.is_planned(states[path])]
    chosen, kind = planned[-count:], "checkpoints"
    if best:
        scores: dict[Path, Any] = {path: states[path].get("score") for path in saved}
        validated = [path for path in saved if scores[path] is not None]
        validated.sort(key=lambda path: scores[path], reverse=True)
        chosen, kind = validated[:count], "validated checkpoints"
    if len(chosen) < count:
        raise CheckpointError(
            f"has {len(chosen)} {kind}, not {count}",
            where=run,
            hint="average fewer, name them, or train with more training.checkpoints.keep_last",
        )
    return chosen


def average(inputs: Sequence[Path], out: Path) -> Path:
    """Write the arithmetic mean, computed in float64, of the inputs' weights to `out`.

    It translates with the options of the newest of them, whatever their order.

    Raises:
        UserError: if an input is damaged, has the weights of another, or is of another model,
            vocabulary or training than the first; if `out` is one of them.
    """
    if not inputs:
        raise UserError("no checkpoints to average", hint="name at least one")
    if out.resolve() in [checkpoint.locate(path).resolve() for path in inputs]:
        raise UserError("one of the inputs", where=out, hint="choose another --output")
    first = newest = checkpoint.load_model(inputs[0])
    sums: dict[str, Tensor] = {}
    paths: dict[str, Path] = {}
    for path in inputs:
        loaded = checkpoint.load_model(path)
        if differs := _difference(first, loaded):
            raise CheckpointError(
                f"not from the same run as {inputs[0]} ({differs})",
                where=path,
                hint="average checkpoints of one run",
            )
        newest = max(newest, loaded, key=_age)
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
        state={
            "kind": "average",
            "inputs": sources,
            checkpoint.TRAINING: first.state.get(checkpoint.TRAINING),
            NEWEST: _age(newest),
        },
        recipe=newest.recipe,
        pipeline=first.pipeline,
    )
    return out


def _difference(first: checkpoint.Loaded, other: checkpoint.Loaded) -> str:
    """What shows that two checkpoints are of different trainings; empty if nothing does."""
    before, after = first.recipe.model_dump(), other.recipe.model_dump()
    changed = [change for change in differences(before, after) if change.startswith(SAME)]
    if changed:
        return changed[0]
    if other.pipeline.fingerprint() != first.pipeline.fingerprint():
        return "another vocabulary"
    if other.state.get(checkpoint.TRAINING) != first.state.get(checkpoint.TRAINING):
        return "another training, by its state.json"
    corpora = [loaded.state.get("corpus") or None for loaded in (first, other)]
    return "another corpus" if None not in corpora and corpora[0] != corpora[1] else ""


def _age(loaded: checkpoint.Loaded) -> int:
    """The last update in the weights; -1 of a model that was not trained here."""
    age = loaded.state.get("update", loaded.state.get(NEWEST))
    return age if isinstance(age, int) else -1
