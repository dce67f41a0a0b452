"""Learning rates over the updates of a training, its stages included (Li et al. 2020, Figure 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, grouped, typed
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.tables import table
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.stages import restarted
from nmtdeep.training.state import Progress

POINTS = 1000  # approximate number of points of a curve
COLUMNS = ("stage", "layers", "updates", "first lr", "highest", "at update", "last")


@dataclass(frozen=True)
class LearningRate:
    """The learning rate of one update, from 1.

    Attributes:
        stage: from 1.
        encoder: number of layers of the encoder in this stage.
        decoder: number of layers of the decoder.
    """

    recipe: str
    stage: int
    encoder: int
    decoder: int
    update: int
    lr: float


def measure(recipes: Mapping[str, Recipe], updates_per_epoch: int | None = None) -> Measurement:
    """The learning rates of some recipes; see `learning_rates`."""
    rows = [
        row
        for name, recipe in recipes.items()
        for row in learning_rates(name, recipe, updates_per_epoch)
    ]
    conditions: dict[str, Any] = {
        name: typed(recipe.training.schedule) for name, recipe in recipes.items()
    }
    if updates_per_epoch:
        conditions["updates per epoch"] = updates_per_epoch
    return Measurement(rows, conditions)


def tables(rows: Sequence[LearningRate]) -> list[Table]:
    """A table for each recipe with a row for each stage."""
    columns = dict.fromkeys(COLUMNS, "right")
    return [
        table(columns, map(_summary, grouped(curve, "stage").values()), title=name)
        for name, curve in grouped(rows, "recipe").items()
    ]


def draw(rows: Sequence[LearningRate], figure: pictures.Figure) -> None:
    """A curve for each recipe; if all have the same stages, the stages' ends are marked."""
    (axes,) = pictures.panels(figure, 1)
    recipes = grouped(rows, "recipe")
    pictures.curves(axes, rows, "update", "lr", by="recipe")
    ends = {
        tuple(stage[-1].update for stage in list(grouped(curve, "stage").values())[:-1])
        for curve in recipes.values()
    }
    if len(ends) == 1:
        axes.set_xticks(ends.pop(), minor=True)
        axes.grid(which="minor", color="0.75")
    axes.set(xlabel="update", ylabel="learning rate")


def learning_rates(
    name: str, recipe: Recipe, updates_per_epoch: int | None = None
) -> list[LearningRate]:
    """About `POINTS` updates of a training, first and last of each stage and each peak included.

    Raises:
        UserError: if a stage's length is given in epochs and `updates_per_epoch` is None.
    """
    stages = stage_updates(recipe, updates_per_epoch)
    step = max(1, stages[-1][0][-1] // POINTS)
    rows = []
    for number, (updates, offset) in enumerate(stages):
        model = recipe.at_stage(number).model
        # The peak is where the warm-up ends, or one update later.
        warm = offset + recipe.training.schedule.warmup_updates
        chosen = {*updates[::step], updates[-1], *({warm, warm + 1}.intersection(updates))}
        for update in sorted(chosen):
            lr = learning_rate(
                recipe.training.schedule,
                update,
                width=recipe.model.width,
                max_updates=recipe.training.max_updates,
                offset=offset,
            )
            depths = model.encoder.depth, model.decoder.depth
            rows.append(LearningRate(name, number + 1, *depths, update, lr))
    return rows


def stage_updates(recipe: Recipe, updates_per_epoch: int | None) -> list[tuple[range, int]]:
    """The updates of each stage, and how many updates its schedule does not count.

    There is one stage if the training has no stages.

    Raises:
        UserError: if a length is given in epochs and `updates_per_epoch` is None.
    """
    training = recipe.training
    end = training.max_updates
    if training.max_epochs is not None and updates_per_epoch:
        end = min(end, training.max_epochs * updates_per_epoch)
    progress, stages = Progress(), []
    for number, stage in enumerate(training.stages or (None,)):
        if number and training.growth.restart_lr:
            progress = restarted(recipe, progress)
        length = None if stage is None else stage.updates
        if stage is not None and stage.epochs is not None:
            if not updates_per_epoch:
                raise UserError(
                    f"stage {number + 1} lasts {stage.epochs} epochs, and the number of updates in "
                    "an epoch depends on the corpus",
                    hint="give --updates-per-epoch N",
                )
            length = stage.epochs * updates_per_epoch
        last = end if length is None else min(end, progress.update + length)
        if last > progress.update:
            stages.append((range(progress.update + 1, last + 1), progress.schedule_offset))
        progress = Progress(update=last, schedule_offset=progress.schedule_offset)
    return stages


def _summary(stage: Sequence[LearningRate]) -> tuple[object, ...]:
    first, last, highest = stage[0], stage[-1], max(stage, key=lambda row: row.lr)
    updates = f"{first.update:,}-{last.update:,}"
    rates = f"{first.lr:.3e}", f"{highest.lr:.3e}", f"{highest.update:,}", f"{last.lr:.3e}"
    return first.stage, f"{first.encoder}+{first.decoder}", updates, *rates
