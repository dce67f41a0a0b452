"""Growing a trained model: a new run with a deeper model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from nmtdeep import checkpoint
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.stages import Frozen, Growth, GrowthStrategy
from nmtdeep.config.warnings import growth
from nmtdeep.errors import Problem, UserError
from nmtdeep.model.build import build, initialize
from nmtdeep.model.growth import LayerMap, carry_over, layer_maps
from nmtdeep.training.memory import check_model_fits
from nmtdeep.training.run_directory import open_run
from nmtdeep.training.stage_control import restarted
from nmtdeep.training.state import Progress


class GrownRun(NamedTuple):
    """The checkpoint of a deeper model, and the one that it was grown from.

    Attributes:
        layers: for each stack, the source of each layer.
        more: options of `train` that raise the limits which the source's training has reached.
        warnings: what growing changes in the layers that are copied.
    """

    checkpoint: Path
    source: Path
    layers: dict[str, LayerMap]
    more: str
    warnings: list[Problem]


def grow(
    source: Path,
    *,
    out: Path,
    depths: Mapping[str, int],
    strategy: GrowthStrategy = "copy_top_group",
    restart_lr: bool = True,
    freeze_copied: bool = False,
) -> GrownRun:
    """Write run directory `out` with the model of `source`, deeper; it can be trained on.

    Args:
        source: run directory or checkpoint.
        depths: layers of `encoder` and `decoder`; as many as before of one that is not named.
        restart_lr: set the learning-rate schedule back to its peak.
        freeze_copied: train only the new layers.

    Raises:
        UserError: if nothing would grow, `out` is a run already or the strategy is impossible.
    """
    old = checkpoint.load_model(source)
    recipe = _deeper(old.recipe, depths, strategy, freeze_copied)
    try:
        maps = layer_maps(strategy, old.recipe.model, recipe.model)
    except ValueError as error:
        hint = "choose more layers with --layers, or another --strategy"
        raise UserError(str(error), hint=hint) from error
    for side, layers in maps.items():
        bottom = getattr(old.recipe.model, side).depth
        if freeze_copied and layers[:bottom] != [*range(bottom)]:
            what = f"{recipe.training.growth.name} does not keep the old layers at the bottom"
            hint = "choose copy_top_group or copy_top_layer"
            raise UserError(what, where="--freeze-copied", hint=hint)
    if any(
        None in layers and getattr(recipe.model, side).residual.type == "admin"
        for side, layers in maps.items()
    ):
        what = "random layers with Admin are measured on sentences, and this command has none"
        raise UserError(what, hint="choose another --strategy, or training.stages in a recipe")
    if checkpoint.saved(out):
        raise UserError("there is a training already", where=out, hint="choose another --out")
    check_model_fits(recipe.model, **old.pipeline.sizes)
    model = build(recipe.model, **old.pipeline.sizes)
    initialize(model, recipe.model, seed=recipe.training.seed)
    carry_over(old.model, model, **maps)
    progress = _progress(old, recipe, restart_lr)
    about = {"kind": checkpoint.GROWN, "source": str(old.path), **maps}
    with open_run(out, recipe, old.pipeline) as run:
        try:
            path = run.save(checkpoint.weights(model), None, progress, planned=False, **about)
        except BaseException:
            checkpoint.discard(out / checkpoint.CONFIG)  # or train would begin with random weights
            raise
    warned = list(growth(old.recipe.model, recipe.model))
    return GrownRun(path, old.path, maps, _more(recipe, progress), warned)


def _more(recipe: Recipe, progress: Progress) -> str:
    """Options of `train` without which the grown run would end before its first update."""
    limits = recipe.training
    options = []
    last = progress.last_update(limits)
    if last is not None and progress.update >= last:
        options.append(f"--max-updates {2 * last}")
    if limits.max_epochs is not None and progress.epoch >= limits.max_epochs:
        options.append(f"--max-epochs {2 * limits.max_epochs}")
    return " ".join(options)


def _deeper(
    recipe: Recipe, depths: Mapping[str, int], strategy: GrowthStrategy, freeze_copied: bool
) -> Recipe:
    """The recipe of the grown run."""
    model, frozen = recipe.model, recipe.training.frozen.model_dump()
    for side, depth in depths.items():
        stack = getattr(model, side)
        if depth == stack.depth:
            continue
        if freeze_copied:
            frozen[side] = stack.depth
        model = model.model_copy(update={side: stack.with_depth(depth)})
    if model == recipe.model:
        raise UserError(f"the model has {model.depths} layers already", hint="choose more layers")
    # The grown model is where the new run starts from.
    changed = recipe.with_training(
        growth=Growth(strategy=strategy), frozen=Frozen(**frozen), stages=(), start_from=None
    )
    # Validated again: the deeper model may be an invalid one.
    return Recipe.model_validate(changed.model_copy(update={"model": model}).model_dump())


def _progress(old: checkpoint.Loaded, recipe: Recipe, restart_lr: bool) -> Progress:
    """The source's position in training; of an average, that of the run's newest checkpoint."""
    saved = list(checkpoint.saved(old.path.parent).values())
    if "update" in old.state:
        before = Progress.from_json(old.state)
    else:
        before = Progress.of(saved[-1]) if saved else Progress()
    progress = Progress(
        update=before.update,
        position=before.position,
        stage_update=before.update,
        stage_epoch=before.epoch,
        schedule_offset=before.schedule_offset,
    )
    return restarted(recipe, progress) if restart_lr else progress
