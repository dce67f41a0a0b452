"""A new run that starts from the weights of another training, of the same model and text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from nmtdeep import checkpoint, files
from nmtdeep.config.load import read_config
from nmtdeep.config.model import SIDES, Model
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences
from nmtdeep.config.stages import StartFrom
from nmtdeep.config.training import Tokenization
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.scoring.metrics import scorers, tokenization_for, validation_metrics
from nmtdeep.text.pipeline import TextPipeline

# Keys of the section `model` that change no trained weight.
FREE = ("model.dropout.", *(f"model{stack}.initializer" for stack in ("", ".encoder", ".decoder")))


def start_text(start: StartFrom, digits: int = 64) -> str:
    """Where the weights come from, on one line, with the first digits of their SHA-256."""
    return f"{start.path} ({start.checkpoint}), SHA-256 {(start.sha256 or '')[:digits]}"


def resolve_start(recipe: Recipe, pipeline: TextPipeline, out: Path) -> Recipe:
    """The recipe of the new run `out`, with the checkpoint that it starts from and its SHA-256.

    Raises:
        UserError: if there is no such checkpoint, or it is damaged, in `out`, or of another model,
            text or SHA-256.
    """
    start = recipe.training.start_from
    if start is None:
        return recipe
    path, source = start.path, checkpoint.locate(Path(start.path))
    name = source.resolve().name
    if source.resolve().is_relative_to(out.resolve()):
        raise UserError("is in the run itself", where=path, hint="choose another --out")
    used = (checkpoint.CONFIG, f"{checkpoint.TEXT}/", checkpoint.MODEL)
    files.verify(source, *used, hint=checkpoint.HINT)
    _check_model(path, read_config(source / checkpoint.CONFIG).model, recipe.at_stage(0).model)
    _check_text(path, TextPipeline.load(source / checkpoint.TEXT), pipeline)
    sha256 = files.read_sums(source, hint=checkpoint.HINT).get(checkpoint.MODEL)
    if start.sha256 not in (None, sha256):
        raise CheckpointError(
            f"the SHA-256 of {name} is not that in the recipe ({start.sha256})",
            where=path,
            hint=f"pass --from {path} to start from these weights",
        )
    found = StartFrom(path=path, checkpoint=name, sha256=sha256)
    return recipe.with_training(start_from=found)


def stored_start(recipe: Recipe, stored: StartFrom | None, out: Path) -> Recipe:
    """The recipe of the run `out`, which exists, with the start that is `stored` in its config.

    Raises:
        UserError: if the recipe names another start.
    """
    given = recipe.training.start_from
    if given and not (stored and _is_start(Path(given.path), stored)):
        began = f"started from {start_text(stored, 16)}" if stored else "started without --from"
        raise UserError(
            f"{began}, not from {given.path}",
            where=out,
            hint="leave out --from to resume it, or choose another --out",
        )
    return recipe.with_training(start_from=stored)


def _is_start(path: Path, stored: StartFrom) -> bool:
    """Whether it is the same place, or has the same weights."""
    if path.resolve() == Path(stored.path).resolve():
        return True
    with suppress(UserError, OSError):
        return files.digest(checkpoint.locate(path) / checkpoint.MODEL) == stored.sha256
    return False


def tokenized(recipe: Recipe, stored: Recipe | None = None) -> Recipe:
    """The recipe with the tokenization of BLEU of the run whose recipe is `stored`, or a new run's.

    Raises:
        UserError: if it is not available on this machine.
    """
    settings = recipe.training.validation
    chosen: Tokenization | None = settings.tokenize or tokenization_for(recipe.text.target)
    if stored is not None:
        kept = stored.training.validation.tokenize  # None before there was a key: 13a
        chosen = kept if settings.tokenize in (None, kept or "13a") else settings.tokenize
    settings = settings.model_copy(update={"tokenize": chosen})
    if settings.bleu:
        scorers(validation_metrics(settings, recipe.text))
    return recipe.with_training(validation=settings)


def _check_model(path: str, old: Model, new: Model) -> None:
    changes = differences(old.model_dump(mode="json"), new.model_dump(mode="json"), "model")
    changes = [change for change in changes if not change.startswith(FREE)]
    if not changes:
        return
    hint = "set the value of the checkpoint; without RECIPE, its own recipe is used"
    for side in SIDES:
        depth, layers = getattr(new, side).depth, getattr(old, side).depth
        if changes[0].startswith(f"model.{side}.depth:") and depth > layers:
            grown = f"nmtdeep grow {path} --stack {side} --layers {depth} --out GROWN"
            hint = f"make it deeper first: {grown}, then pass --from GROWN"
    raise CheckpointError(f"has another model ({changes[0]})", where=path, hint=hint)


def _check_text(path: str, old: TextPipeline, new: TextPipeline) -> None:
    changed = sorted({name for name, _ in old.contents().items() ^ new.contents().items()})
    if not changed:
        return
    before, after = (pipeline.config.model_dump(mode="json") for pipeline in (old, new))
    first = [*differences(before, after, "text"), *changed][0]
    hint = f"preprocess the corpus with --text {path}"
    raise CheckpointError(f"has another text pipeline than --data ({first})", where=path, hint=hint)
