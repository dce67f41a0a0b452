"""The run directory: config, text pipeline, logs and checkpoints of one training."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from nmtdeep import checkpoint, files
from nmtdeep.config import Recipe
from nmtdeep.config.load import read_config
from nmtdeep.config.render import differences, dump
from nmtdeep.data.index import INDEX_FILE
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.state import Progress

LOG, RECORDS, VALIDATIONS = "train.log", "train.jsonl", "validations.tsv"
SCORES = "scores.json"
TENSORBOARD = "tensorboard"
LOCK = ".lock"
# What makes another experiment of a run; `max_tokens` only spreads its updates over a device.
FIXED = (
    "model.",
    "text.",
    "training.seed",
    "training.batches.",
    "training.optimizer.type",
    "training.stages",
    "training.growth.",
    "training.frozen.",
    "training.validation.best_by",
)
FREE = "training.batches.max_tokens"


@dataclass(frozen=True)
class RunDirectory:
    """An opened run, locked against a second training.

    Attributes:
        changes: settings that differ from those the run was started with, as `key: old -> new`.
    """

    path: Path
    recipe: Recipe
    pipeline: TextPipeline
    changes: tuple[str, ...] = ()

    def newest(self) -> Path | None:
        """The checkpoint to resume from.

        Raises:
            CheckpointError: if a newer one is damaged: going back behind it deletes records.
        """
        saved = checkpoint.saved(self.path)
        last = max(saved, default=0)
        for path in sorted(self.path.glob("checkpoint_*")):
            match = re.fullmatch(r"checkpoint_(\d+)", path.name)
            if match and int(match[1]) > last and not (path / checkpoint.STATE).is_file():
                start = f"update {last}" if saved else "the start"
                raise CheckpointError(
                    f"{path} is damaged (no {checkpoint.STATE}): copy it back from elsewhere, or "
                    f"delete it to train on from {start}"
                )
        return saved[last] if saved else None

    def progress(self) -> Progress:
        """Where its training stands.

        Raises:
            CheckpointError: if the newest checkpoint is damaged or in a stage of another recipe.
        """
        newest = self.newest()
        progress = Progress.of(newest) if newest else Progress()
        if progress.stage >= max(len(self.recipe.training.stages), 1):
            raise CheckpointError(
                f"{self.path} was trained up to stage {progress.stage + 1}, which the recipe does "
                "not have: give the recipe that it was started with"
            )
        return progress

    def save(
        self,
        tensors: Any,
        optimizer: Any,
        progress: Progress,
        *,
        recipe: Recipe,
        planned: bool,
    ) -> Path:
        """Write `checkpoint_<update>`, move the links, delete what need not be kept.

        `recipe` is the one of the stage that the training is in; it describes these weights.

        One that is not `planned` (somebody asked the training to leave) goes when the next is
        written, so that what is kept and averaged does not depend on interruptions.
        """
        path = self.path / f"checkpoint_{progress.update}"
        checkpoint.save(
            path,
            tensors=tensors,
            optimizer=optimizer,
            state={**progress.to_json(), "planned": planned},
            recipe=recipe,
            pipeline=self.pipeline,
        )
        checkpoint.point(self.path, checkpoint.LAST, path)
        if progress.is_best:
            checkpoint.point(self.path, checkpoint.BEST, path)
        self.prune()
        return path

    def prune(self) -> None:
        """Delete checkpoints that are neither among the newest nor among the best."""
        keep = self.recipe.training.checkpoints
        saved = checkpoint.saved(self.path)
        states = {update: checkpoint.read_state(path) for update, path in saved.items()}
        planned = [update for update, state in states.items() if state.get("planned", True)]
        scored = [update for update in planned if states[update].get("score") is not None]
        best = sorted(scored, key=lambda update: (-states[update]["score"], update))
        kept = {*list(saved)[-1:], *planned[-keep.keep_last :], *best[: keep.keep_best]}
        linked = {(self.path / name).resolve() for name in (checkpoint.LAST, checkpoint.BEST)}
        for update, path in saved.items():
            if update not in kept and path.resolve() not in linked:
                checkpoint.remove(path)

    def mend(self, progress: Progress) -> list[str]:
        """Finish or undo what a kill cut short, so that the run stands as it was at `progress`.

        Returns:
            what was lost that no kill explains, to be said.
        """
        for path in self.path.glob(".checkpoint_*"):
            checkpoint.discard(path)
        for name, update in (
            (checkpoint.LAST, progress.update),
            (checkpoint.BEST, progress.best_update),
        ):
            target = self.path / f"checkpoint_{update}"
            if target.is_dir():
                checkpoint.point(self.path, name, target)
            else:
                (self.path / name).unlink(missing_ok=True)
        self.prune()
        return self.forget_after(progress.update)

    def drop_results(self) -> None:
        """Delete average and scores: the training goes on, and they would be of fewer updates."""
        (self.path / SCORES).unlink(missing_ok=True)
        checkpoint.discard(self.path / checkpoint.AVERAGE)

    def forget_after(self, update: int) -> list[str]:
        """Drop records of updates that will be done again, so that each stands there once."""
        lost = {
            RECORDS: _filter(
                self.path / RECORDS, lambda line: int(json.loads(line)["update"]) <= update
            ),
            VALIDATIONS: _filter(
                self.path / VALIDATIONS,
                lambda line: line.startswith("update\t") or int(line.split("\t")[0]) <= update,
            ),
        }
        return [f"{name}: dropped {count} broken lines" for name, count in lost.items() if count]


def _filter(path: Path, keep: Callable[[str], bool]) -> int:
    """Keep the lines that `keep` wants; broken ones go too.

    Returns how many were broken, but for the last line: a kill or a crash leaves that so.
    """
    if not path.exists():
        return 0
    text = path.read_text(encoding="utf-8", errors="replace")
    lines, wanted, broken = text.splitlines(keepends=True), [], []
    for number, line in enumerate(lines):
        try:
            if line.endswith("\n") and keep(line):
                wanted.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            broken.append(number)
    kept = "".join(wanted)
    if kept != text:
        with files.replace_file(path) as partial:
            partial.write_text(kept, encoding="utf-8")
    return len([number for number in broken if number < len(lines) - 1])


@contextmanager
def open_run(
    path: Path, recipe: Recipe, pipeline: TextPipeline, *, overwrite: bool = False
) -> Iterator[RunDirectory]:
    """Create or reopen a run; the recipe of a reopened run must describe the same model and text.

    With `overwrite`, what a run left there is deleted first.

    Raises:
        UserError: if another process trains there, the path is a data directory, the recipe or
            corpus is another, or something in it leads elsewhere.
    """
    files.check_place(path, "--out")
    _check_entries(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("w")
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: {error.strerror}: change its permissions, or "
            "choose another --out"
        ) from error
    with lock:
        _take(lock, path)
        if overwrite:
            _clear(path)
        changes = _check_same(path, recipe, pipeline)
        _write_config(path, recipe)
        pipeline.save(path / checkpoint.TEXT)
        yield RunDirectory(path, recipe, pipeline, tuple(changes))


def look_at_run(
    path: Path, recipe: Recipe, pipeline: TextPipeline, *, overwrite: bool = False
) -> RunDirectory:
    """What `open_run` would open, with the same checks; nothing is written.

    Raises:
        UserError: as `open_run`.
    """
    files.check_place(path, "--out")
    existing = next(one for one in (path, *path.absolute().parents) if one.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(
            f"cannot write to {existing}: Permission denied: change its permissions, or choose "
            "another --out"
        )
    _check_entries(path)
    if (path / LOCK).exists():
        with (path / LOCK).open() as lock:
            _take(lock, path)
    changes = [] if overwrite else _check_same(path, recipe, pipeline)
    return RunDirectory(path, recipe, pipeline, tuple(changes))


def _take(lock: IO[str], path: Path) -> None:
    """Lock a run until the file is closed.

    Raises:
        UserError: if another process has locked it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UserError(
            f"another process is training in {path}: wait for it, or choose another --out"
        ) from error


def _clear(path: Path) -> None:
    """Delete checkpoints and records; anything that is not a run's stays."""
    for entry in [*path.glob("checkpoint_*"), *path.glob(".checkpoint_*"), path / "bpe_dropout"]:
        checkpoint.discard(entry)
    for name in (LOG, RECORDS, VALIDATIONS, SCORES):
        (path / name).unlink(missing_ok=True)
    checkpoint.discard(path / TENSORBOARD)


def _check_entries(path: Path) -> None:
    """Nothing that a training opens here may be a pipe, or lie elsewhere."""
    ours = (checkpoint.CONFIG, checkpoint.TEXT, LOG, RECORDS, VALIDATIONS, SCORES, TENSORBOARD)
    found = (path.glob(name) for name in ("checkpoint_*", ".*.partial", ".*.old"))
    entries = [*chain(*found), *(path / name for name in (*ours, files.SUMS, LOCK, "bpe_dropout"))]
    checkpoint.check_entries(path, entries)


def _write_config(path: Path, recipe: Recipe) -> None:
    """Write the recipe unless it is there, and its checksum.

    A kill in between leaves no checksums, so that nothing is compared with old ones.
    """
    config, content = path / checkpoint.CONFIG, dump(recipe)
    if config.is_file() and config.read_text(encoding="utf-8", errors="replace") == content:
        return
    (path / files.SUMS).unlink(missing_ok=True)
    with files.replace_file(config) as partial:
        partial.write_text(content, encoding="utf-8")
    files.write_sums(path, checkpoint.CONFIG)


def _check_same(path: Path, recipe: Recipe, pipeline: TextPipeline) -> list[str]:
    """Changes of the recipe that a run may take, none where it has no checkpoint yet."""
    config = path / checkpoint.CONFIG
    if (path / INDEX_FILE).exists():
        raise UserError(f"{path} is a data directory: choose another --out for the run")
    if not config.exists():
        if any(path.glob("checkpoint_*")):
            raise CheckpointError(
                f"{path} holds checkpoints but no {checkpoint.CONFIG}: copy it back from one of "
                "them, or choose another --out"
            )
        return []
    saved = checkpoint.saved(path)
    if not saved:
        return []
    if (path / files.SUMS).exists():
        files.verify(path, checkpoint.CONFIG, hint="copy it back from elsewhere")
    before = read_config(config)
    changed = differences(before.model_dump(), recipe.model_dump())
    fatal = [one for one in changed if one.startswith(FIXED) and not one.startswith(FREE)]
    if fatal:
        raise UserError(
            f"{path} was trained with another recipe ({'; '.join(fatal[:4])}): choose another "
            "--out, or give the recipe it was started with"
        )
    text = saved[max(saved)] / checkpoint.TEXT
    if TextPipeline.load(text).fingerprint() != pipeline.fingerprint():
        raise UserError(
            f"{path} was trained on a corpus with another vocabulary than --data: give the "
            "corpus it was started with, or choose another --out"
        )
    return changed
