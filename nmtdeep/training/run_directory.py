"""The run directory: recipe, text pipeline, records and checkpoints of one training."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from nmtdeep import checkpoint, files
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences, dump
from nmtdeep.data.index import INDEX_FILE
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.state import Progress
from nmtdeep.units import counted

LOG, RECORDS, VALIDATIONS = "train.log", "train.jsonl", "validations.tsv"
SCORES = "scores.json"
TENSORBOARD, DROPOUT = "tensorboard", "bpe_dropout"
# What a training writes beside its checkpoints.
OUTPUTS = (LOG, RECORDS, VALIDATIONS, SCORES, TENSORBOARD, DROPOUT)
LOCK = ".lock"
# An average that is not yet known to be better than the best checkpoint.
CANDIDATE = "checkpoint_candidate"
# Another value of these is another experiment; `max_tokens` only divides updates over a device.
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
OTHER_OUT = "choose another --out"
UNWRITABLE = f"change its permissions, or {OTHER_OUT}"


@dataclass(frozen=True)
class RunDirectory:
    """An opened run, locked against a second training.

    Attributes:
        changes: settings that differ from those of the start of the run, as `key: old -> new`.
    """

    path: Path
    recipe: Recipe
    pipeline: TextPipeline
    changes: tuple[str, ...] = ()

    def newest(self) -> Path | None:
        """The checkpoint to resume from; None if there is none.

        Raises:
            CheckpointError: if a newer one is damaged: resuming from an older one deletes records.
        """
        saved = checkpoint.saved(self.path)
        last = max(saved, default=0)
        for path in self.path.glob("checkpoint_*"):
            update = path.name.removeprefix("checkpoint_")
            if update.isdecimal() and int(update) > last:
                start = f"update {last}" if saved else "the start"
                raise CheckpointError(
                    f"is damaged (no {checkpoint.STATE})",
                    where=path,
                    hint=f"restore it from a copy, or delete it to train on from {start}",
                )
        return saved[last] if saved else None

    def progress(self) -> Progress:
        """How far its training is.

        Raises:
            CheckpointError: if the newest checkpoint is damaged or of another recipe.
        """
        newest = self.newest()
        progress = Progress.of(newest) if newest else Progress()
        if progress.stage >= max(len(self.recipe.training.stages), 1):
            raise CheckpointError(
                f"is in stage {progress.stage + 1}, which the recipe does not have",
                where=newest,
                hint=checkpoint.HINT,
            )
        return progress

    def save(self, tensors: Any, optimizer: Any, progress: Progress, *, planned: bool) -> Path:
        """Write `checkpoint_<update>`, move the links, delete checkpoints that are not kept.

        Args:
            planned: False if a signal requested this checkpoint. The next one replaces it, so that
                what is kept and averaged does not depend on interruptions.
        """
        path = self.path / f"checkpoint_{progress.update}"
        checkpoint.save(
            path,
            tensors=tensors,
            optimizer=optimizer,
            state={**progress.to_json(), "planned": planned},
            recipe=self.recipe.at_stage(progress.stage),
            pipeline=self.pipeline,
        )
        self.link(progress)
        self.prune()
        return path

    def link(self, progress: Progress) -> None:
        """Point `checkpoint_last` and `checkpoint_best` to the checkpoints of `progress`."""
        updates = {checkpoint.LAST: progress.update, checkpoint.BEST: progress.best_update}
        for name, update in updates.items():
            target = self.path / f"checkpoint_{update}"
            if target.is_dir():
                checkpoint.point(self.path, name, target)
            else:
                (self.path / name).unlink(missing_ok=True)

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

    def repair(self, progress: Progress) -> list[str]:
        """Finish or undo what a kill interrupted, so that the run is as it was at `progress`.

        Returns:
            messages about unreadable records, which are deleted.
        """
        for path in (*self.path.glob(".checkpoint_*"), self.path / CANDIDATE):
            checkpoint.discard(path)
        self.link(progress)
        self.prune()
        records = (self.path / RECORDS, self.path / VALIDATIONS)
        messages = [drop_records_after(progress.update, path) for path in records]
        return [message for message in messages if message]

    def drop_results(self) -> None:
        """Delete average and scores: they belong to fewer updates than the run will have."""
        (self.path / SCORES).unlink(missing_ok=True)
        checkpoint.discard(self.path / checkpoint.AVERAGE)


def drop_records_after(last: int, path: Path) -> str:
    """Delete the lines of updates after `last`, which will be done again, and unreadable lines.

    Returns:
        a message if lines are unreadable. A kill or a crash may leave the last one incomplete.
    """
    if not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept, unreadable = [], 0
    for number, line in enumerate(lines, start=1):
        try:
            if line.endswith("\n") and _update_of(line) <= last:
                kept.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            unreadable += number < len(lines)
    if len(kept) < len(lines):
        with files.replace_file(path) as partial:
            partial.write_text("".join(kept), encoding="utf-8")
    return f"{path.name}: deleted {counted(unreadable, 'unreadable line')}" if unreadable else ""


def _update_of(line: str) -> int:
    """The update of a record or of a row of the table; 0 for the table's heading."""
    if line.startswith("update\t"):
        return 0
    return int(json.loads(line)["update"] if line.startswith("{") else line.partition("\t")[0])


@contextmanager
def open_run(
    path: Path,
    recipe: Recipe,
    pipeline: TextPipeline,
    *,
    overwrite: bool = False,
    dry_run: bool = False,
) -> Iterator[RunDirectory]:
    """Create or reopen a run; the recipe of a reopened run must describe the same model and text.

    Args:
        overwrite: delete first what a training left there.
        dry_run: make all checks, but write nothing.

    Raises:
        UserError: if another process trains there, the path is a data directory, the recipe or
            corpus is another, or something in the run is outside of it.
    """
    _check_entries(path)
    with ExitStack() as held:
        if not dry_run:
            held.enter_context(_lock(path))
        elif (path / LOCK).exists():
            _lock(path).close()
        else:
            existing = next(parent for parent in path.absolute().parents if parent.exists())
            if not os.access(path if path.exists() else existing, os.W_OK):
                raise UserError("cannot be written to", where=path, hint=UNWRITABLE)
        changes = () if overwrite else _check_same(path, recipe, pipeline)
        if not dry_run:
            if overwrite:
                _clear(path)
            _write_config(path, recipe)
            pipeline.save(path / checkpoint.TEXT)
        yield RunDirectory(path, recipe, pipeline, changes)


def _lock(path: Path) -> TextIO:
    """Lock a run, which is made if it does not exist, until the returned file is closed.

    Raises:
        UserError: if another process trains there, or the run cannot be written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / LOCK).open("a")
    except OSError as error:
        raise UserError(
            f"cannot be written to ({error.strerror or error})",
            where=path,
            hint=UNWRITABLE,
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise UserError(
            "another process is training there",
            where=path,
            hint=f"wait until it ends, or {OTHER_OUT}",
        ) from error
    return lock


def _clear(path: Path) -> None:
    """Delete checkpoints and records, and no other files."""
    outputs = (path / name for name in OUTPUTS)
    for entry in (*outputs, *path.glob("checkpoint_*"), *path.glob(".checkpoint_*")):
        checkpoint.discard(entry)


def _check_entries(path: Path) -> None:
    """Check that the path may be a run, and that what a training opens there is inside it.

    Raises:
        UserError: if it is a file or a data directory, or an entry is a pipe, a device or a link
            that leads out.
    """
    files.check_place(path, "--out")
    if (path / INDEX_FILE).exists():
        raise UserError("is a data directory", where=path, hint=f"{OTHER_OUT} for the run")
    names = (*OUTPUTS, checkpoint.CONFIG, checkpoint.TEXT, files.SUMS, LOCK)
    entries = [path / name for name in names]
    for pattern in ("checkpoint_*", ".*.partial", ".*.old"):
        entries += path.glob(pattern)
    files.check_entries(path, entries)


def _write_config(path: Path, recipe: Recipe) -> None:
    """Write the recipe and its checksum, unless it is there already.

    A kill in between leaves no checksums, so that nothing is compared with old ones.
    """
    config, content = path / checkpoint.CONFIG, dump(recipe)
    if config.is_file() and config.read_text(encoding="utf-8", errors="replace") == content:
        return
    (path / files.SUMS).unlink(missing_ok=True)
    with files.replace_file(config) as partial:
        partial.write_text(content, encoding="utf-8")
    files.write_sums(path, checkpoint.CONFIG)


def _check_same(path: Path, recipe: Recipe, pipeline: TextPipeline) -> tuple[str, ...]:
    """Changes of the recipe, which a run accepts; none where it has no checkpoint yet.

    Raises:
        UserError: if the run has another model or text.
    """
    config, saved = path / checkpoint.CONFIG, checkpoint.saved(path)
    if not config.exists() and any(path.glob("checkpoint_*")):
        raise CheckpointError(
            f"has checkpoints but no {checkpoint.CONFIG}",
            where=path,
            hint=f"copy it from one of them, or {OTHER_OUT}",
        )
    if not saved:
        return ()
    if (path / files.SUMS).exists():
        files.verify(path, checkpoint.CONFIG, hint="restore it from a copy")
    changes = differences(read_config(config).model_dump(), recipe.model_dump())
    fatal = [key for key in changes if key.startswith(FIXED) and not key.startswith(FREE)]
    if fatal:
        raise UserError(
            f"was trained with another recipe ({'; '.join(fatal[:4])})",
            where=path,
            hint=f"{OTHER_OUT}, or give the recipe that the run was started with",
        )
    text = saved[max(saved)] / checkpoint.TEXT
    if TextPipeline.load(text).fingerprint() != pipeline.fingerprint():
        raise UserError(
            "was trained on a corpus with another vocabulary than --data",
            where=path,
            hint=f"give the corpus that the run was started with, or {OTHER_OUT}",
        )
    return tuple(changes)
