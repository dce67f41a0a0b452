"""Learning rates over the updates of a training, its stages included (Li et al. 2020, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from nmtdeep import checkpoint
from nmtdeep.analysis.measurement import Column, Measurement, grouped, typed
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.stage_control import next_stage
from nmtdeep.training.state import Progress

POINTS = 1000  # approximate number of points of a curve


class LearningRate(NamedTuple):
    """The learning rate of one update, in a stage with so many layers; both count from 1."""

    recipe: Annotated[str, Column("recipe", role="curve")]
    stage: int
    encoder: int
    decoder: int
    update: Annotated[int, Column("update", role="x")]
    lr: Annotated[float, Column("learning rate", role="y")]


def measure(
    recipes: Mapping[str, Recipe],
    updates_per_epoch: int | None = None,
    runs: Mapping[str, Path] | None = None,
) -> Measurement:
    """The learning rates of some recipes; the `runs` of recipes know their length in updates."""
    rows: list[LearningRate] = []
    for name, recipe in recipes.items():
        last = None
        if recipe.training.max_updates == "auto" and runs and name in runs:
            saved = list(checkpoint.saved(runs[name]).values())
            last = Progress.of(saved[-1]).last_update(recipe.training) if saved else None
        rows += learning_rates(name, recipe, updates_per_epoch, last)
    schedules = {name: typed(recipe.training.schedule) for name, recipe in recipes.items()}
    epoch = {"updates per epoch": updates_per_epoch} if updates_per_epoch else {}
    summary = []
    for (name, number), stage in grouped(rows, "recipe", "stage").items():
        first, end, highest = stage[0], stage[-1], max(stage, key=lambda row: row.lr)
        layers, span = f"{first.encoder}+{first.decoder}", f"{first.update:,}-{end.update:,}"
        place = {"recipe": name, "stage": number, "layers": layers, "updates": span}
        peak = {"highest": highest.lr, "at update": highest.update}
        summary.append(place | {"first lr": first.lr} | peak | {"last": end.lr})
    title = "Learning rate over the training"
    return Measurement(title, rows, schedules | epoch, summary, form=".3e", apart="recipe")


def learning_rates(
    name: str, recipe: Recipe, updates_per_epoch: int | None = None, last: int | None = None
) -> list[LearningRate]:
    """About `POINTS` updates of a training, first and last of each stage and each peak included.

    A run may have fixed the `last` update where `max_updates` is auto.
    """
    training, schedule = recipe.training, recipe.training.schedule
    end = last if training.max_updates == "auto" else training.max_updates
    if end is None:
        what = "training.max_updates is auto, which a run fixes after 50 updates"
        hint = "pass such a run to nmtdeep analyze schedule, or training.max_updates=N"
        raise UserError(what, where=name, hint=hint)
    if training.max_epochs is not None and updates_per_epoch:
        end = min(end, training.max_epochs * updates_per_epoch)
    progress, rows = Progress(), []
    for number, stage in enumerate(training.stages or (None,)):
        progress = next_stage(recipe, progress) if number else progress
        length = None if stage is None else stage.updates
        if stage is not None and stage.epochs is not None:
            if not updates_per_epoch:
                what = f"stage {number + 1} lasts {stage.epochs} epochs, whose number of updates "
                what += "depends on the corpus"
                raise UserError(what, where=name, hint="pass --updates-per-epoch N")
            length = stage.epochs * updates_per_epoch
        first, offset = progress.update + 1, progress.schedule_offset
        stop = end if length is None else min(end, progress.update + length)
        model = recipe.at_stage(number).model
        # The peak is where the warm-up ends, or one update later; at most half of an auto length.
        peak = offset + schedule.warmup_updates
        chosen = {*range(first, stop + 1, max(1, end // POINTS)), stop, peak, peak + 1, end // 2}
        for update in sorted(chosen.intersection(range(first, stop + 1))):
            lr = learning_rate(recipe, update, offset, last=last)
            depths = model.encoder.depth, model.decoder.depth
            rows.append(LearningRate(name, number + 1, *depths, update, lr))
        progress = replace(progress, update=stop)
    return rows
