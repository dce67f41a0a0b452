"""The run directory: recipe, text pipeline, records and checkpoints of one training."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtdeep import checkpoint, files
from nmtdeep.checkpoint import RECORDS
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences, dump
from nmtdeep.config.variant import packages_of
from nmtdeep.data.index import INDEX_FILE
from nmtdeep.errors import UserError
from nmtdeep.scoring.stored import SCORES
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training import starting
from nmtdeep.training.state import Progress

LOG = "train.log"
OLDER = "validations.tsv"  # written until 2026-11
TENSORBOARD = "tensorboard"
LOGGED_AS = "loggers.json"
# Files that a training writes in addition to checkpoints.
OUTPUTS = (LOG, RECORDS, OLDER, SCORES, TENSORBOARD, LOGGED_AS)
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
    "training.quantization",
    "training.validation.best_by",
    "training.validation.tokenize",
)
CORPUS = "corpus"  # in `state.json`
FREE = "training.batches.max_tokens"
OTHER_OUT = "choose another --out"


@dataclass(frozen=True)
class RunDirectory:
    """An opened run, locked against a second training.

    Attributes:
        changes: settings that differ from those of the start of the run, as `key: old -> new`.
        corpus: digest of what it is trained on, stored with each checkpoint; empty: unknown.
    """

    path: Path
    recipe: Recipe
    pipeline: TextPipeline
    changes: tuple[str, ...] = ()
    corpus: str = ""

    def newest(self) -> Path | None:
        """The checkpoint to resume from, which may be damaged; None for a new run."""
        paths = checkpoint.saved(self.path) | {
            int(update): path
            for path in self.path.glob("checkpoint_*")
            if (update := path.name.removeprefix("checkpoint_")).isdecimal()
        }
        return paths[max(paths)] if paths else None

    def begin(self) -> None:
        """Write `checkpoint_0` of a new run, the weights it starts from, if there are any."""
        if start := self.recipe.training.start_from:
            source = checkpoint.locate(Path(start.path))
            tensors = checkpoint.read_tensors(source / checkpoint.MODEL)
            self.save(tensors, None, Progress(), planned=False, kind=checkpoint.INITIAL)

    def save(
        self, tensors: Any, optimizer: Any, progress: Progress, *, planned: bool, **about: Any
    ) -> Path:
        """Write `checkpoint_<update>`, move the links, delete checkpoints that are not kept.

        Args:
            planned: False if it is saved for a signal, or only because it is the best so far. The
                next one replaces it, unless it is among the best, so that what is kept does not
                depend on interruptions, nor what is averaged on validations.
            about: more of its state, such as its kind.
        """
        path = self.path / f"checkpoint_{progress.update}"
        saved = list(checkpoint.saved(self.path).values())
        about[checkpoint.TRAINING] = (
            checkpoint.read_state(saved[-1]).get(checkpoint.TRAINING)
            if saved
            else identity(self.recipe, self.pipeline)
        )
        checkpoint.save(
            path,
            tensors=tensors,
            optimizer=optimizer,
            state={**progress.to_json(), **about, "planned": planned, CORPUS: self.corpus},
            recipe=self.recipe.at_stage(progress.stage),
            pipeline=self.pipeline,
        )
        self.link(progress)
        self.prune()
        return path

    def link(self, progress: Progress) -> None:
        """Point `checkpoint_last` and `checkpoint_best` to the checkpoints of `progress`."""
        best = None if progress.best is None else progress.best_update
        for name, update in ((checkpoint.LAST, progress.update), (checkpoint.BEST, best)):
            target = self.path / f"checkpoint_{update}"
            if target.is_dir():
                checkpoint.point(self.path, name, target)
            else:
                checkpoint.discard(self.path / name)

    def prune(self) -> None:
        """Delete checkpoints that are neither among the newest nor among the best."""
        keep = self.recipe.training.checkpoints
        saved = checkpoint.saved(self.path)
        states = {update: checkpoint.read_state(path) for update, path in saved.items()}
        planned = [update for update, state in states.items() if checkpoint.is_planned(state)]
        scored = [
            update
            for update, state in states.items()
            if state.get("score") is not None
            and (update in planned or state["best_update"] == update)
        ]
        best = sorted(scored, key=lambda update: (-states[update]["score"], update))
        kept = {*list(saved)[-1:], *planned[-keep.keep_last :], *best[: keep.keep_best]}
        links = (self.path / name for name in (checkpoint.LAST, checkpoint.BEST))
        linked = {checkpoint.follow(link).resolve() for link in links}
        for update, path in saved.items():
            if update not in kept and path.resolve() not in linked:
                checkpoint.remove(path)

    def repair(self, progress: Progress) -> None:
        """Finish or undo what a kill interrupted, so that the run is as it was at `progress`."""
        for path in (*self.path.glob(".checkpoint_*"), self.path / CANDIDATE):
            checkpoint.discard(path)
        self.link(progress)
        self.prune()
        drop_records_after(progress.update, self.path / RECORDS)

    def accept(self) -> None:
        """Store the recipe, which may have changed, before it is trained with."""
        _write_config(self.path, self.recipe)

    def drop_results(self) -> None:
        """Delete average and scores: they belong to fewer updates than the run will have."""
        (self.path / SCORES).unlink(missing_ok=True)
        checkpoint.discard(self.path / checkpoint.AVERAGE)


def identity(recipe: Recipe, pipeline: TextPipeline) -> str:
    """A hash of all in a recipe that its weights depend on, but for the limits of the training."""
    shown = {"validation", "checkpoints", "log_every", "log_to", "record_gradients"}
    limits = {"max_updates", "max_epochs", "max_minutes", "checkpoint_activations"}
    free: Any = dict.fromkeys(shown | limits, True)
    free |= {"batches": {"max_tokens"}, "start_from": {"path"}}
    values: list[Any] = [recipe.model.model_dump(mode="json")]
    values += [recipe.training.model_dump(mode="json", exclude=free), pipeline.fingerprint()]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]


def drop_records_after(last: int, path: Path) -> None:
    """Delete the records of updates after `last`, which come again, and unreadable lines."""
    if not path.exists():
        return
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    kept = []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            if line.endswith("\n") and int(json.loads(line)["update"]) <= last:
                kept.append(line)
    if len(kept) < len(lines):
        with files.replace_file(path) as partial:
            partial.write_text("".join(kept), encoding="utf-8")


@contextmanager
def open_run(
    path: Path, recipe: Recipe, pipeline: TextPipeline, *, overwrite: bool = False, corpus: str = ""
) -> Iterator[RunDirectory]:
    """Create or reopen a run, locked until the end of the block.

    Args:
        overwrite: delete first what a training left there.
        corpus: digest of what is trained on; empty: not checked.

    Raises:
        UserError: as `check_run`, or if another process trains there.
    """
    run = check_run(path, recipe, pipeline, overwrite=overwrite, corpus=corpus)
    path.mkdir(parents=True, exist_ok=True)
    with locked(path):
        if overwrite:
            outputs = (path / name for name in OUTPUTS)
            for entry in (*outputs, *path.glob("checkpoint_*"), *path.glob(".checkpoint_*")):
                checkpoint.discard(entry)
            (path / LOCK).write_text(os.environ.get("TORCHELASTIC_RUN_ID", ""), encoding="utf-8")
        if not checkpoint.saved(path):
            run.accept()
        pipeline.save(path / checkpoint.TEXT)
        for update, saved in checkpoint.saved(path).items():
            saved.rename(path / f"checkpoint_{update}")  # the copy of a link may be the only one
        if not checkpoint.saved(path):
            run.begin()
        yield run


def begun_by_this_launch(path: Path) -> bool:
    """Whether torchrun has started the ranks again, which have overwritten the run already."""
    lock = path / LOCK
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0 and lock.exists()
    return restarted and lock.read_text("utf-8") == os.environ["TORCHELASTIC_RUN_ID"]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a run until the end of the block.

    Raises:
        UserError: if another process has locked it.
    """
    with (path / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = f"wait until it ends, or {OTHER_OUT}"
            raise UserError("another process is training there", where=path, hint=hint) from error
        except OSError:  # a disk without locks
            pass
        yield


def check_run(
    path: Path, recipe: Recipe, pipeline: TextPipeline, *, overwrite: bool = False, corpus: str = ""
) -> RunDirectory:
    """The run in `path`, which may be new; nothing is written.

    The recipe of the result says what the run starts from.

    Raises:
        UserError: if the path is a file, a data directory or a checkpoint, the recipe or corpus is
            another than the run's, something in the run is outside of it, or it cannot start from
            the weights it should.
    """
    files.check_place(path, "--out")
    if (path / INDEX_FILE).exists():
        raise UserError("is a data directory", where=path, hint=f"{OTHER_OUT} for the run")
    if (path / checkpoint.STATE).exists():
        hint = f"{OTHER_OUT}; to start from its weights, train with --from {path}"
        raise UserError("is a checkpoint, not a run", where=path, hint=hint)
    outputs = [path / name for name in (*OUTPUTS, LOCK)]
    for pattern in ("checkpoint_*", ".*.partial", ".*.old"):
        outputs += path.glob(pattern)
    shared = [path / name for name in (checkpoint.CONFIG, checkpoint.TEXT, files.SUMS)]
    files.check_entries(path, [*outputs, *shared])
    if overwrite or not checkpoint.saved(path):
        empty = not (path.is_dir() and any(path.iterdir()))
        if not (overwrite or empty or any(entry.exists() for entry in outputs)):
            hint = f"{OTHER_OUT}, or pass --overwrite, which deletes only files of a training"
            raise UserError("holds files, and no training", where=path, hint=hint)
        recipe = starting.tokenized(starting.resolve_start(recipe, pipeline, path))
        return RunDirectory(path, recipe, pipeline, (), corpus)
    return _check_same(path, recipe, pipeline, corpus)


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


def _check_same(path: Path, recipe: Recipe, pipeline: TextPipeline, corpus: str) -> RunDirectory:
    """The run in `path`, of the same model, text and start, with what else has changed since."""
    if (path / files.SUMS).exists():
        files.verify(path, checkpoint.CONFIG, hint="restore it from a copy")
    before, saved = read_config(path / checkpoint.CONFIG), checkpoint.saved(path)
    recipe = starting.stored_start(recipe, before.training.start_from, path)
    recipe = starting.tokenized(recipe, before)
    changes = differences(before.model_dump(), recipe.model_dump())
    # Figures by another loss, COMET model or beam cannot be compared with the best so far.
    best_by = recipe.training.validation.best_by
    compared = {
        "loss": ("label_smoothing",),
        "comet": ("validation.beam", "validation.comet"),
    }.get(best_by, ("validation.beam",))
    fixed = (*FIXED, *(f"training.{key}" for key in compared))
    fatal = [key for key in changes if key.startswith(fixed) and not key.startswith(FREE)]
    if fatal:
        raise UserError(
            f"was trained with another recipe ({'; '.join(fatal[:4])})",
            where=path,
            hint=f"{OTHER_OUT}, or pass the recipe that the run was started with",
        )
    state = checkpoint.read_state(saved[max(saved)])
    changes += differences(state.get(checkpoint.PACKAGES, {}), packages_of(recipe))
    text = saved[max(saved)] / checkpoint.TEXT
    files.verify(text.parent, f"{checkpoint.TEXT}/", hint=checkpoint.HINT)
    if TextPipeline.load(text).fingerprint() != pipeline.fingerprint():
        raise UserError(
            "was trained on a corpus with another vocabulary than --data",
            where=path,
            hint=f"pass the corpus that the run was started with, or {OTHER_OUT}",
        )
    before_it = state.get(CORPUS)  # a checkpoint of an earlier version has none
    if before_it and corpus and before_it != corpus:
        raise UserError(
            "was trained on other text than that of --data (its checksums differ)",
            where=path,
            hint=f"pass the data directory that the run was started with, or {OTHER_OUT}",
        )
    return RunDirectory(path, recipe, pipeline, tuple(changes), corpus)
