"""What a run, a checkpoint or a data directory is, on one screen, and whether it is undamaged."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open

from nmtdeep import checkpoint, files
from nmtdeep.config.load import read_config
from nmtdeep.config.model import Stack
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.slots import PlainStack, Sinusoidal, TopLayer
from nmtdeep.config.text import JointBpe, NoBpe
from nmtdeep.data.index import COPY, INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY, read_index
from nmtdeep.errors import CheckpointError, DataError, Problem, UserError, printable
from nmtdeep.preprocessing.report import PreprocessingReport
from nmtdeep.scoring.report import score_table
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.finish import stored_scores
from nmtdeep.training.run_directory import SCORES
from nmtdeep.training.state import Progress
from nmtdeep.units import counted, duration, short, size

T = TypeVar("T")

HINT = "use another checkpoint of the run, or copy this one again"
EMBEDDINGS = {
    "all": "one table for source, target and output",
    "decoder": "one table for target and output, another for the source",
    "none": "separate tables for source, target and output",
}


@dataclass
class Screen:
    """Rows, in order, and a problem for each damaged file."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, name: str, value: str) -> None:
        """One more row; a row without a name continues the row above."""
        self.rows.append((name, printable(value)))

    def read(self, reader: Callable[[], T]) -> T | None:
        """What `reader` returns; None if it raises, which is a problem of a file."""
        try:
            return reader()
        except UserError as error:
            known = {problem.where for problem in self.problems}
            self.problems += [problem for problem in error.problems if problem.where not in known]
            return None

    def finish(self) -> None:
        """Add the last rows: whether every file is as it was written."""
        for number, problem in enumerate(self.problems):
            self.add("" if number else "DAMAGED", str(problem))
        if not self.problems:
            self.add("integrity", "ok: every file is as it was written")


def inspect_run(path: Path) -> Screen:
    """Everything about a run directory.

    Raises:
        CheckpointError: if there is no checkpoint in it, or a link leads out of it.
    """
    read = (path / checkpoint.CONFIG, path / SCORES)
    files.check_entries(path, [*read, *path.glob("checkpoint_*")])
    meant = checkpoint.locate(path)
    numbered = list(checkpoint.saved(path).values())
    average = path / checkpoint.AVERAGE
    saved = [*numbered, *([average] if (average / checkpoint.STATE).is_file() else [])]
    protected = [file.name for file in read if file.is_file()]
    screen = Screen(problems=list(files.problems(path, *protected, hint=HINT)))
    for directory in path.glob("checkpoint_*"):
        if (directory / checkpoint.STATE).is_file() and not directory.is_symlink():
            screen.problems += files.problems(directory, hint=HINT)
        elif directory.is_dir() and not directory.is_symlink():
            screen.problems.append(Problem(f"no {checkpoint.STATE}", str(directory), HINT))
    screen.add("run", str(path))
    recipe = _add_model(screen, meant)
    best_by = recipe.training.validation.best_by if recipe else "score"
    progress = _progress(screen, _state(screen, numbered[-1])) if numbered else None
    if progress:
        limit = f" of {recipe.training.max_updates:,}" if recipe else ""
        screen.add("trained", f"{progress.update:,}{limit} updates, {_spent(progress)}")
        if progress.best is not None:
            best = f"{best_by} {abs(progress.best):.4f}"
            screen.add("best", f"update {progress.best_update:,} by validation: {best}")
    _add_scores(screen, path, meant)
    longest = max(len(directory.name) for directory in saved)
    for number, directory in enumerate(saved):
        links = (checkpoint.LAST, checkpoint.BEST)
        notes = [link for link in links if (path / link).resolve() == directory.resolve()]
        notes = [link.removeprefix("checkpoint_") for link in notes]
        notes += ["translates"] * (directory.resolve() == meant)
        state = _state(screen, directory)
        score = state.get("score")
        about = "" if score is None else f"  {best_by} {abs(score):.4f}"
        if state.get("kind") == "average":
            about = f"  mean of {len(_inputs(state))}"
        rest = f" ({', '.join(notes)})" if notes else ""
        line = f"{directory.name:<{longest}}  {_size_of(directory):>8}{about}{rest}"
        screen.add("" if number else "checkpoints", line)
    screen.finish()
    return screen


def inspect_checkpoint(path: Path) -> Screen:
    """Everything about one checkpoint."""
    files.check_entries(path, [path])
    screen = Screen(problems=list(files.problems(path, hint=HINT)))
    screen.add("checkpoint", str(path))
    _add_model(screen, path)
    state = _state(screen, path)
    progress = _progress(screen, state)
    if progress and progress.update:
        screen.add("trained", f"{counted(progress.update, 'update')}, {_spent(progress)}")
    if state.get("kind") == "average":
        screen.add("mean of", ", ".join(_inputs(state)))
    screen.add("size", f"{_size_of(path)} on disk")
    screen.finish()
    return screen


def report_of(path: Path, index: dict[str, Any]) -> PreprocessingReport:
    """The counts of preprocessing.

    Raises:
        DataError: if data.json does not contain them.
    """
    try:
        values = {"seconds": {}, **index["report"]}
        return TypeAdapter(PreprocessingReport).validate_python(values)
    except (KeyError, TypeError, ValidationError) as error:
        raise DataError("broken (report)", where=path / INDEX_FILE, hint=COPY) from error


def inspect_data(path: Path) -> tuple[Screen, PreprocessingReport]:
    """Everything about a data directory, and the counts of preprocessing.

    Raises:
        DataError: if it is not one, its data.json is damaged, or a link leads out of it.
    """
    read = (INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY)
    files.check_entries(path, [path / name for name in read], hint=COPY)
    index = read_index(path)
    screen = Screen(problems=list(files.problems(path, hint=COPY)))
    screen.add("data", f"{path}, made by nmtdeep {index.get('nmtdeep', '?')}")
    recipe = screen.read(lambda: read_config(path / RECIPE_FILE))
    pipeline = _add_text(screen, recipe, path / TEXT_DIRECTORY)
    if pipeline is not None and pipeline.fingerprint() != index["fingerprint"]:
        what = "not the text pipeline that made the ids"
        screen.problems.append(Problem(what, str(path / TEXT_DIRECTORY), COPY))
    screen.add("size", f"{_size_of(path)} on disk")
    screen.finish()
    return screen, report_of(path, index)


def parameters(path: Path) -> int:
    """Numbers in a safetensors file, by its header alone.

    Raises:
        CheckpointError: if it is missing, truncated or of another format.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        what = f"missing, truncated or not a safetensors file ({error})"
        raise CheckpointError(what, where=path, hint=HINT) from error
    return sum(math.prod(shape) for shape in shapes)


def _add_model(screen: Screen, path: Path) -> Recipe | None:
    """Rows about the model of a checkpoint; returns its recipe."""
    recipe = screen.read(lambda: read_config(path / checkpoint.CONFIG))
    if recipe is None:
        return None
    if recipe.description:
        screen.add("recipe", recipe.description)
    model = recipe.model
    count = screen.read(lambda: parameters(path / checkpoint.MODEL))
    screen.add("model", f"width {model.width}" + (f", {count:,} parameters" if count else ""))
    screen.add("encoder", _stack(model.encoder))
    screen.add("decoder", _stack(model.decoder))
    screen.add("embeddings", EMBEDDINGS[model.embeddings.sharing])
    if not isinstance(model.positions, Sinusoidal):
        screen.add("positions", model.positions.type)
    if not isinstance(model.bridge, TopLayer):
        screen.add("bridge", model.bridge.type)
    screen.add("initializer", model.initializer.type)
    _add_text(screen, recipe, path / checkpoint.TEXT)
    if recipe.reference and recipe.reference.scores:
        published = (f"{name} {value:g}" for name, value in recipe.reference.scores.items())
        screen.add("published", ", ".join(published))
    return recipe


def _stack(stack: Stack) -> str:
    parts = [counted(stack.depth, "layer"), f"{stack.heads} heads"]
    parts += [f"{stack.feed_forward:,} inside", stack.residual.type]
    if not isinstance(stack.combination, PlainStack):
        parts.append(stack.combination.type)
    kinds = [sublayer.type for sublayer in getattr(stack, "sublayers", ())]
    if kinds and kinds != ["self_attention", "cross_attention", "feed_forward"]:
        parts.append(" + ".join(kinds))
    return ", ".join(parts)


def _state(screen: Screen, path: Path) -> dict[str, Any]:
    return screen.read(lambda: checkpoint.read_state(path)) or {}


def _progress(screen: Screen, state: dict[str, Any]) -> Progress | None:
    """The progress of a training; None if the checkpoint does not come from one."""
    return screen.read(lambda: Progress.from_json(state)) if "update" in state else None


def _spent(progress: Progress) -> str:
    return (
        f"{counted(progress.epoch, 'complete epoch')}, "
        f"{short(progress.target_tokens)} target tokens, {duration(progress.seconds)}"
    )


def _inputs(state: dict[str, Any]) -> list[str]:
    """Names of the checkpoints that an average is the mean of."""
    inputs = state.get("inputs")
    listed = inputs if isinstance(inputs, list) else []
    return [str(entry.get("checkpoint")) for entry in listed if isinstance(entry, dict)]


def _add_scores(screen: Screen, path: Path, meant: Path) -> None:
    """Scores of held-out sets, with each signature once."""
    if not (path / SCORES).is_file():
        return
    report = stored_scores(path, meant)
    if report is None:
        screen.add("scores", "none of these weights: run the training command again")
        return
    screen.add("scores", f"of {report.checkpoint}")
    for line in score_table(report.scores):
        screen.add("", line)


def _add_text(screen: Screen, recipe: Recipe | None, path: Path) -> TextPipeline | None:
    """Rows about the text pipeline in `path` and its vocabularies; returns it."""
    pipeline = screen.read(lambda: TextPipeline.load(path))
    if recipe is None or pipeline is None:
        return None
    text, sides = recipe.text, (pipeline.source, pipeline.target)
    parts = [f"{text.source} to {text.target}", f"{text.input} text"]
    parts += ["normalized"] * (text.normalize and text.input == "raw")
    parts += ["lower-cased"] * text.lowercase
    merges = [f"{len(side.bpe.merges):,}" for side in sides if side.bpe]
    if isinstance(text.bpe, NoBpe) or not merges:
        parts.append("no BPE of its own")
    else:
        counts = merges[0] if isinstance(text.bpe, JointBpe) else " and ".join(merges)
        parts.append(f"{text.bpe.type} BPE of {counts} merges")
        parts += [f"BPE-dropout {text.bpe.dropout:g}"] * bool(text.bpe.dropout)
    screen.add("text", ", ".join(parts))
    types = " and ".join(f"{len(side.vocabulary):,} {side.language} types" for side in sides)
    if text.vocabulary.sharing == "shared":
        types = f"{len(sides[0].vocabulary):,} types, shared"
    screen.add("vocabulary", f"{types}; text pipeline {pipeline.fingerprint()[:16]}")
    return pipeline


def _size_of(directory: Path) -> str:
    """The size of all files below a directory, without links."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return size(sum(path.stat().st_size for path in files))
