"""The run directory: config, text pipeline, logs and checkpoints of one training."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtdeep import checkpoint
from nmtdeep.config import Recipe
from nmtdeep.config.load import dump, read_config
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.state import Progress

LOG, RECORDS, VALIDATIONS = "train.log", "train.jsonl", "validations.tsv"
LOCK = ".lock"


@dataclass(frozen=True)
class RunDirectory:
    """An opened run, locked against a second training."""

    path: Path
    recipe: Recipe
    pipeline: TextPipeline

    def newest(self) -> Path | None:
        """The checkpoint to resume from."""
        saved = checkpoint.saved(self.path)
        return saved[max(saved)] if saved else None

    def save(self, tensors: Any, optimiser: Any, progress: Progress, *, is_best: bool) -> Path:
        """Write `checkpoint_<update>`, move the links, delete what need not be kept."""
        path = self.path / f"checkpoint_{progress.update}"
        checkpoint.save(
            path,
            tensors=tensors,
            optimiser=optimiser,
            state=progress.to_json(),
            recipe=self.recipe,
            pipeline=self.pipeline,
        )
        checkpoint.point(self.path, checkpoint.LAST, path)
        if is_best:
            checkpoint.point(self.path, checkpoint.BEST, path)
        self.prune()
        return path

    def prune(self) -> None:
        """Delete checkpoints that are neither among the newest nor among the best."""
        keep = self.recipe.training.checkpoints
        saved = checkpoint.saved(self.path)
        scores = {
            update: score for update, path in saved.items() if (score := _score(path)) is not None
        }
        best = sorted(scores, key=lambda update: (-scores[update], update))[: keep.keep_best]
        kept = {*list(saved)[-keep.keep_last :], *best}
        linked = {(self.path / name).resolve() for name in (checkpoint.LAST, checkpoint.BEST)}
        for update, path in saved.items():
            if update not in kept and path.resolve() not in linked:
                checkpoint.remove(path)

    def forget_after(self, update: int) -> None:
        """Drop records of updates that will be done again, so that each stands there once."""
        _filter(self.path / RECORDS, lambda line: json.loads(line).get("update", 0) <= update)
        _filter(
            self.path / VALIDATIONS,
            lambda line: not line.split("\t")[0].isdigit() or int(line.split("\t")[0]) <= update,
        )


def _score(path: Path) -> float | None:
    score = checkpoint.read_state(path).get("score")
    return None if score is None else float(score)


def _filter(path: Path, keep: Any) -> None:
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # A line that a kill cut short has no end and goes.
    kept = [line for line in lines if line.endswith("\n") and keep(line)]
    if kept != lines:
        beside = path.with_name(f".{path.name}.partial")
        beside.write_text("".join(kept), encoding="utf-8")
        beside.replace(path)


@contextmanager
def open_run(path: Path, recipe: Recipe, pipeline: TextPipeline) -> Iterator[RunDirectory]:
    """Create or reopen a run; the recipe of a reopened run must describe the same model and text.

    Raises:
        UserError: if another process trains there, the path is no run directory, or the recipe or
            corpus is another.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("w")
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}: mend its permissions or "
            "choose another --out"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"another process is training in {path}: wait for it, or choose another --out"
            ) from error
        _check_same(path, recipe, pipeline)
        _write_config(path, recipe)
        pipeline.save(path / checkpoint.TEXT)
        yield RunDirectory(path, recipe, pipeline)


def _write_config(path: Path, recipe: Recipe) -> None:
    beside = path / f".{checkpoint.CONFIG}.partial"
    beside.write_text(dump(recipe), encoding="utf-8")
    beside.replace(path / checkpoint.CONFIG)


def _check_same(path: Path, recipe: Recipe, pipeline: TextPipeline) -> None:
    config = path / checkpoint.CONFIG
    strange = [entry.name for entry in path.iterdir() if entry.name != LOCK]
    if not config.exists():
        if any(name.startswith("checkpoint_") for name in strange):
            raise CheckpointError(
                f"{path} holds checkpoints but no {checkpoint.CONFIG}: copy it back from one of "
                "them, or choose another --out"
            )
        return
    before = read_config(config)
    changed = differences(before.model_dump(), recipe.model_dump())
    fatal = [
        change
        for change in changed
        if change.startswith(("model.", "text.", "training.seed", "training.batches."))
        and not change.startswith("training.batches.max_tokens")
    ]
    if fatal and checkpoint.saved(path):
        raise UserError(
            f"{path} was trained with another recipe ({'; '.join(fatal[:4])}): choose another "
            "--out, or give the recipe it was started with"
        )
    if checkpoint.saved(path):
        newest = list(checkpoint.saved(path).values())[-1]
        if TextPipeline.load(newest / checkpoint.TEXT).fingerprint() != pipeline.fingerprint():
            raise UserError(
                f"{path} was trained on a corpus with another vocabulary than --data: give the "
                "corpus it was started with, or choose another --out"
            )


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Leaves in which two dumped recipes differ, as `key.path: old -> new`."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [f"{prefix}: {old} -> {new}"]
    return [
        change
        for key in [*old, *(key for key in new if key not in old)]
        for change in differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
    ]
