"""A run directory or a checkpoint on one screen."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from nmtdeep import checkpoint, files
from nmtdeep.config import Recipe
from nmtdeep.config.load import read_config
from nmtdeep.config.model import Model, Stack
from nmtdeep.config.slots import PlainStack, Sinusoidal, TopLayer
from nmtdeep.errors import CheckpointError, DataError, UserError
from nmtdeep.inspection.findings import Findings, size_of, text_row, vocabulary_row
from nmtdeep.scoring.rendering import score_table
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.training.finish import StoredScores
from nmtdeep.training.run_directory import RECORDS, SCORES
from nmtdeep.training.state import Progress
from nmtdeep.units import counted, duration, short, size

HINT = "use another checkpoint of the run, or copy this one again"


def inspect_run(path: Path) -> Findings:
    """All that a run directory says of itself.

    Raises:
        CheckpointError: if there is no checkpoint in it at all, or something leads elsewhere.
    """
    found = Findings()
    read = (checkpoint.CONFIG, RECORDS, SCORES)
    checkpoint.check_entries(path, [*(path / name for name in read), *path.glob("checkpoint_*")])
    meant = checkpoint.locate(path)
    saved = [*checkpoint.saved(path).values()]
    if (path / checkpoint.AVERAGE / checkpoint.STATE).is_file():
        saved.append(path / checkpoint.AVERAGE)
    for one in saved:
        _check(found, one)
    for one in path.glob("checkpoint_*"):
        if one.is_dir() and not (one / checkpoint.STATE).is_file():
            found.damages.append(f"{one}: no {checkpoint.STATE}: {HINT}")
    found.damages += map(str, files.problems(path, checkpoint.CONFIG, hint=HINT))
    found.add("run", str(path))
    _model_rows(found, meant)
    _training_rows(found, path, saved)
    _score_rows(found, path)
    links = {
        name: (path / name).resolve().name
        for name in (checkpoint.LAST, checkpoint.BEST)
        if (path / name).is_symlink()
    }
    recipe = _note(found, lambda: read_config(meant / checkpoint.CONFIG))
    best_by = recipe.training.validation.best_by if recipe else "score"
    longest = max(len(one.name) for one in saved)
    for number, one in enumerate(saved):
        names = [name.removeprefix("checkpoint_") for name in links if links[name] == one.name]
        names += ["translates"] * (one.resolve() == meant)
        rest = f" ({', '.join(names)})" if names else ""
        about = _described(_state(found, one), best_by)
        found.add(
            "" if number else "checkpoints",
            f"{one.name:<{longest}}  {size(size_of([one])):>8}{about}{rest}",
        )
    found.finish()
    return found


def inspect_checkpoint(path: Path) -> Findings:
    """All that one checkpoint says of itself."""
    found = Findings()
    checkpoint.check_entries(path, [path])
    _check(found, path)
    found.add("checkpoint", str(path))
    _model_rows(found, path)
    state = _state(found, path)
    progress = _progress(found, state)
    if progress and progress.update:
        found.add("trained", _spent(progress))
    if state.get("kind") == "average":
        found.add("mean of", ", ".join(_inputs(state)))
    found.add("size", f"{size(size_of([path]))} on disk")
    found.finish()
    return found


def _note(found: Findings, check: Any) -> Any:
    """What `check` gives; what it complains of is a damage, unless its file is known for one."""
    try:
        return check()
    except UserError as error:
        known = {one.partition(":")[0] for one in found.damages}
        lines = str(error).split("\n")
        found.damages += [line for line in lines if line.partition(":")[0] not in known]
        return None


def _state(found: Findings, path: Path) -> dict[str, Any]:
    return _note(found, lambda: checkpoint.read_state(path)) or {}


def _check(found: Findings, path: Path) -> None:
    """Compare every file of a checkpoint with its checksum."""
    found.damages += map(str, files.problems(path, hint=HINT))


def _model_rows(found: Findings, path: Path) -> None:
    recipe = _note(found, lambda: read_config(path / checkpoint.CONFIG))
    if recipe is None:
        return
    if recipe.description:
        found.add("recipe", recipe.description)
    count = _note(found, lambda: parameters(path / checkpoint.MODEL))
    of = f", {count:,} parameters" if count else ""
    found.add("model", f"width {recipe.model.width}{of}")
    for name, stack in (("encoder", recipe.model.encoder), ("decoder", recipe.model.decoder)):
        found.add(name, _stack(stack))
    found.add("embeddings", _embeddings(recipe.model))
    if not isinstance(recipe.model.positions, Sinusoidal):
        found.add("positions", recipe.model.positions.type)
    if not isinstance(recipe.model.bridge, TopLayer):
        found.add("bridge", recipe.model.bridge.type)
    found.add("initializer", recipe.model.initializer.type)
    pipeline = _note(found, lambda: TextPipeline.load(path / checkpoint.TEXT))
    if pipeline is not None:
        found.add("text", text_row(recipe, pipeline))
        found.add("vocabulary", vocabulary_row(recipe, pipeline))
    _reference_row(found, recipe)


def _stack(stack: Stack) -> str:
    parts = [
        counted(stack.depth, "layer"),
        f"{stack.heads} heads",
        f"{stack.feed_forward:,} inside",
    ]
    parts.append(stack.residual.type)
    if not isinstance(stack.combination, PlainStack):
        parts.append(stack.combination.type)
    kinds = [one.type for one in getattr(stack, "sublayers", ())]
    if kinds and kinds != ["self_attention", "cross_attention", "feed_forward"]:
        parts.append(" + ".join(kinds))
    return ", ".join(parts)


def _embeddings(model: Model) -> str:
    return {
        "all": "one table for source, target and output",
        "decoder": "one table for target and output, another for the source",
        "none": "separate tables for source, target and output",
    }[model.embeddings.sharing]


def _reference_row(found: Findings, recipe: Recipe) -> None:
    """What the paper printed, where the recipe says so."""
    scores = recipe.reference.scores if recipe.reference else {}
    if scores:
        found.add("published", ", ".join(f"{name} {value:g}" for name, value in scores.items()))


def parameters(path: Path) -> int:
    """Numbers in a safetensors file, by its header alone.

    Raises:
        CheckpointError: if it is missing, truncated or foreign.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: missing, truncated or foreign ({error}): {HINT}") from error
    return sum(math.prod(shape) for shape in shapes)


def _training_rows(found: Findings, path: Path, saved: list[Path]) -> None:
    trained = [one for one in saved if one.name != checkpoint.AVERAGE]
    if not trained:
        return
    progress = _progress(found, _state(found, trained[-1]))
    recipe = _note(found, lambda: read_config(path))
    if progress is None:
        return
    limit = f" of {recipe.training.max_updates:,}" if recipe else ""
    found.add("trained", _spent(progress, limit))
    best = progress.best_update
    record = _validation(path / RECORDS, best)
    if best and record:
        bleu = record.get("valid_bleu")
        figures = f"loss {record.get('valid_loss'):.4f}, ppl {record.get('valid_ppl'):.2f}"
        if bleu is not None:
            figures += f", bleu {bleu:.2f}"
            if not (path / SCORES).is_file():  # else the signature is below the scores
                figures += f"  {record.get('signature', '')}"
        found.add("best", f"update {best:,} by validation: {figures}")


def _progress(found: Findings, state: dict[str, Any]) -> Progress | None:
    """Where a training stood, if the checkpoint is of one."""
    if "update" not in state:
        return None
    progress: Progress | None = _note(found, lambda: Progress.from_json(state))
    return progress


def _spent(progress: Progress, limit: str = "") -> str:
    updates = f"update{'s' * (bool(limit) or progress.update != 1)}"
    return (
        f"{progress.update:,}{limit} {updates}, {counted(progress.epoch, 'complete epoch')}, "
        f"{short(progress.target_tokens)} target tokens, {duration(progress.seconds)}"
    )


def _inputs(state: dict[str, Any]) -> list[str]:
    """Names of the checkpoints that an average is the mean of."""
    inputs = state.get("inputs")
    found = inputs if isinstance(inputs, list) else []
    return [str(one.get("checkpoint")) for one in found if isinstance(one, dict)]


def _validation(path: Path, update: int) -> dict[str, Any] | None:
    """The record of the validation after `update`; records are no part of what is promised."""
    try:
        content = files.read_limited(path, hint="")
    except DataError:
        return None
    lines = content.decode("utf-8", errors="replace").splitlines()
    for line in reversed(lines):
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if not isinstance(record, dict) or record.get("kind") != "validation":
                continue
            figures = (record.get("valid_loss"), record.get("valid_ppl"))
            if record.get("update") == update and all(isinstance(one, float) for one in figures):
                return record
    return None


def _score_rows(found: Findings, path: Path) -> None:
    """Scores of held-out sets, with each signature once."""
    if not (path / SCORES).is_file():
        return
    stored = _note(found, lambda: files.read_json(path / SCORES, hint="delete it"))
    if stored is None:
        return
    try:
        report = StoredScores.model_validate(stored)
    except ValidationError:
        found.damages.append(f"{path / SCORES}: not the scores of a run: delete it")
        return
    if report.weights != files.digest(checkpoint.locate(path) / checkpoint.MODEL):
        found.add("scores", "none of these weights: run the training command again to measure them")
        return
    found.add("scores", f"of {report.checkpoint}")
    for line in score_table(report.scores):
        found.add("", line)


def _described(state: dict[str, Any], best_by: str) -> str:
    """What a checkpoint is among those of its run."""
    if state.get("kind") == "average":
        return f"  mean of {len(_inputs(state))}"
    score = state.get("score")
    return "" if score is None else f"  {best_by} {abs(score):.4f}"
