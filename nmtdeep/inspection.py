"""Description of a run, a checkpoint or a data directory on one screen, and its verification."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from safetensors import SafetensorError, safe_open

from nmtdeep import checkpoint, files
from nmtdeep.config.load import read_config
from nmtdeep.config.model import Stack
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.text import SentencePiece
from nmtdeep.config.variant import packages_of
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.index import COPY, INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY, read_index
from nmtdeep.data.position import MixedPosition
from nmtdeep.errors import CheckpointError, Problem, printable
from nmtdeep.preprocessing.language import unchecked
from nmtdeep.preprocessing.summary import report_of
from nmtdeep.preprocessing.text_checks import SIZE, CheckedText, warnings
from nmtdeep.scoring.metrics import best_figure
from nmtdeep.scoring.report import score_table
from nmtdeep.scoring.stored import SCORES, stored_scores
from nmtdeep.text.lines import read_lines
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.starting import start_text
from nmtdeep.training.state import Progress
from nmtdeep.units import counted, duration, kwh, short, size

HINT = "use another checkpoint of the run, or copy this one again"


@dataclass
class Inspection:
    """Rows and tables for the screen, and a problem for each damaged file."""

    problems: list[Problem]
    rows: list[tuple[str, str]] = field(default_factory=list)
    tables: list[RenderableType] = field(default_factory=list)

    def add(self, name: str, *values: str) -> None:
        """A row for each value; only the first has the name."""
        for number, value in enumerate(values):
            self.rows.append(("" if number else name, printable(value)))


def inspect(path: Path) -> Inspection:
    """Verify a run, a checkpoint or a data directory, and describe it if nothing is damaged.

    Raises:
        UserError: if it is something else, a link leads out of it, or a file is invalid.
    """
    path = checkpoint.follow(path)
    if (path / INDEX_FILE).is_file():
        screen = _inspect_data(path)
    elif (path / checkpoint.STATE).is_file():
        screen = _inspect_checkpoint(path)
    else:
        screen = _inspect_run(path)
    screen.add("DAMAGED", *map(str, screen.problems))
    if not screen.problems:
        screen.add("integrity", "ok: every file is as it was written")
    return screen


def parameters(path: Path) -> int:
    """Numbers in a safetensors file, by its header alone.

    Raises:
        CheckpointError: if it is missing, truncated or of another format.
    """
    try:
        checkpoint.check_header(path)
        with safe_open(path, framework="numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError, ValueError) as error:
        what = f"missing, truncated or not a safetensors file ({error})"
        raise CheckpointError(what, where=path, hint=HINT) from error
    return sum(math.prod(shape) for shape in shapes)


def _inspect_run(path: Path) -> Inspection:
    directories = [each for each in path.glob("checkpoint_*") if each.is_dir()]
    files.check_entries(path, [path / checkpoint.CONFIG, path / SCORES, *directories])
    meant = checkpoint.locate(path)
    own = [name for name in (checkpoint.CONFIG, SCORES) if (path / name).is_file()]
    screen = Inspection([*files.problems(path, *own, hint=HINT)])
    for directory in directories:
        if not directory.is_symlink():
            screen.problems += files.problems(directory, hint=HINT)
    screen.add("run", str(path))
    if screen.problems:
        return screen
    recipe = _add_model(screen, meant)
    saved = list(checkpoint.saved(path).values())
    if saved:
        newest = read_config(path / checkpoint.CONFIG)  # whose limits may be other ones
        _add_progress(screen, newest, checkpoint.read_state(saved[-1]))
    if scores := stored_scores(path, meant):
        screen.add("scores", f"of {scores.title}", *score_table(scores.scores))
    elif SCORES in own:
        screen.add("scores", "scores.json belongs to other weights: run the training command again")
    average = path / checkpoint.AVERAGE
    saved += [average] if (average / checkpoint.STATE).is_file() else []
    longest = max(len(directory.name) for directory in saved)
    links = {"last": path / checkpoint.LAST, "best": path / checkpoint.BEST, "translates": meant}
    links = {note: checkpoint.follow(link) for note, link in links.items()}
    lines = []
    for directory in saved:
        state = checkpoint.read_state(directory)
        notes = [note for note, link in links.items() if link.resolve() == directory.resolve()]
        about = f"  mean of {len(_inputs(state))}" if state.get("kind") == "average" else ""
        if state.get("score") is not None:
            about = f"  {best_figure(recipe.training.validation, recipe.text, state['score'])}"
        about += f" ({', '.join(notes)})" if notes else ""
        lines.append(f"{directory.name:<{longest}}  {size(files.size_of(directory)):>8}{about}")
    screen.add("checkpoints", *lines)
    return screen


def _inspect_checkpoint(path: Path) -> Inspection:
    files.check_entries(path, [path])
    screen = Inspection([*files.problems(path, hint=HINT)])
    screen.add("checkpoint", str(path))
    if screen.problems:
        return screen
    recipe, state = _add_model(screen, path), checkpoint.read_state(path)
    _add_progress(screen, recipe, state)
    if state.get("kind") == "average":
        screen.add("mean of", ", ".join(_inputs(state)))
    screen.add("size", f"{size(files.size_of(path))} on disk")
    return screen


def _inspect_data(path: Path) -> Inspection:
    read = (INDEX_FILE, RECIPE_FILE, TEXT_DIRECTORY)
    files.check_entries(path, [path / name for name in read], hint=COPY)
    index = read_index(path)
    screen = Inspection([*files.problems(path, hint=COPY)])
    screen.add("data", f"{path}, made by nmtdeep {index.get('nmtdeep', '?')}")
    if screen.problems:
        return screen
    data = DataDirectory(path, index)
    _add_text(screen, read_config(path / RECIPE_FILE), data.pipeline)
    if len(data.training) > 1:
        screen.add("training", ", ".join(data.training))
    for name, tag in data.pipeline.config.tags.items():
        screen.add("tag", f"{tag} before the source sentences of {name}")
    screen.add("size", f"{size(files.size_of(path))} on disk")
    screen.add("warnings", *map(str, _text_warnings(data)))
    if why := unchecked(data.languages):
        screen.add("languages", why.removeprefix("languages were "))
    screen.tables += report_of(path, index).tables()
    return screen


def _text_warnings(data: DataDirectory) -> Iterator[Problem]:
    """The warnings of `preprocess` about the stored text, and the ids of training joined again."""
    pipeline = data.pipeline
    for name in data.splits:
        paths = [str(data.path / f"{name}.{language}") for language in data.languages]
        form, sample = pipeline.config.input, CheckedText()
        if name in data.training:
            form, corpus = "tokenized", data.corpus(name)
            sides = ((pipeline.source, corpus.source), (pipeline.target, corpus.target))
            for number in range(0, len(corpus), max(1, len(corpus) // SIZE)):
                source, target = (
                    side.join(side.vocabulary.words(ids[number].tolist()), form)
                    for side, ids in sides
                )
                sample.add(number + 1, (source, target))
        else:
            for number, pair in enumerate(zip(*map(read_lines, paths), strict=True), 1):
                sample.add(number, pair)
        yield from warnings(sample, paths, data.languages, form)


def _add_model(screen: Inspection, path: Path) -> Recipe:
    """Rows about the model of a checkpoint; returns its recipe."""
    packages = checkpoint.read_state(path).get(checkpoint.PACKAGES, {})
    recipe = read_config(path / checkpoint.CONFIG)
    model = recipe.model
    if recipe.description:
        screen.add("based on", recipe.description)  # values may have been changed
    screen.add("model", f"width {model.widths}, {parameters(path / checkpoint.MODEL):,} parameters")
    screen.add("encoder", _stack(model.encoder))
    screen.add("decoder", _stack(model.decoder))
    normed = f", queries and keys with {model.qk_norm}" if model.qk_norm != "none" else ""
    screen.add("layers", f"{model.activation}, {model.norm}{normed}")
    screen.add("embeddings", f"sharing {model.embeddings.sharing}")
    for name in ("positions", "bridge", "initializer"):
        screen.add(name, getattr(model, name).type)
    for variant in packages_of(recipe):
        screen.add("from outside", f"{variant} of the package {packages.get(variant, '?')}")
    _add_text(screen, recipe, TextPipeline.load(path / checkpoint.TEXT))
    if start := recipe.training.start_from:
        screen.add("started from", start_text(start))
    if recipe.reference and recipe.reference.scores:
        published = (f"{name} {value:g}" for name, value in recipe.reference.scores.items())
        screen.add("published", ", ".join(published))
    return recipe


def _stack(stack: Stack) -> str:
    parts = [counted(stack.depth, "layer"), f"{stack.heads} heads"]
    parts += [f"feed-forward {stack.feed_forward:,}", f"residual {stack.residual.type}"]
    parts += [f"combination {stack.combination.type}"]
    parts += [" + ".join(sublayer.type for sublayer in stack.sublayers)]
    parts += [f"initializer {stack.initializer.type}"] if stack.initializer else []
    return ", ".join(filter(None, parts))


def _add_progress(screen: Inspection, recipe: Recipe, state: dict[str, Any]) -> None:
    """Rows about the training that a checkpoint comes from, if it comes from one."""
    if not state.get("update"):
        return
    progress = Progress.from_json(state)
    last = progress.last_update(recipe.training)
    updates = f"{progress.update:,}{'' if last is None else f' of {last:,}'} updates"
    epochs = counted(progress.epoch, "complete epoch")
    if isinstance(progress.position, MixedPosition):
        corpora = progress.position.corpora.items()
        epochs = f"complete epochs: {', '.join(f'{name} {each.epoch}' for name, each in corpora)}"
    parts = [updates, epochs]
    if progress.target_tokens:  # a grown run counts its own
        parts += [f"{short(progress.target_tokens)} target tokens", duration(progress.seconds)]
    screen.add("trained", ", ".join(parts))
    used = "not readable where it was trained"
    screen.add("energy", used if progress.joules is None else kwh(progress.joules))
    if progress.best is not None:
        best = best_figure(recipe.training.validation, recipe.text, progress.best)
        screen.add("best", f"update {progress.best_update:,} by validation: {best}")


def _inputs(state: dict[str, Any]) -> list[str]:
    """Names of the checkpoints that an average is the mean of."""
    inputs = state.get("inputs")
    listed = inputs if isinstance(inputs, list) else []
    return [str(entry.get("checkpoint")) for entry in listed if isinstance(entry, dict)]


def _add_text(screen: Inspection, recipe: Recipe, pipeline: TextPipeline) -> None:
    """Rows about a text pipeline and its vocabularies."""
    text, merges = recipe.text, [f"{count:,}" for count in pipeline.merges.values()]
    parts = [f"{text.source} to {text.target}", f"{text.input} text"]
    if text.normalize and text.input == "raw":
        parts.append("normalized")
    if text.lowercase:
        parts.append("lower-cased")
    if merges:
        parts.append(f"{text.bpe.type} BPE of {' and '.join(merges)} merges")
    if isinstance(text.tokenizer, SentencePiece):
        parts.append(f"SentencePiece ({text.tokenizer.model})")
    screen.add("text", ", ".join(parts))
    types = " and ".join(f"{count:,} {name} types" for name, count in pipeline.types.items())
    screen.add("vocabulary", f"{types}; text pipeline {pipeline.fingerprint()[:16]}")
