"""Learning rates over the updates of a training, its stages included (Li et al. 2020, Figure 5)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, grouped, typed
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.windows import DataPosition
from nmtdeep.errors import UserError
from nmtdeep.tables import table
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.stages import begin_next, finished, is_over
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
    return [
        table(COLUMNS, map(_summary, grouped(curve, "stage").values()), text=0, title=name)
        for name, curve in grouped(rows, "recipe").items()
    ]


def draw(rows: Sequence[LearningRate], figure: pictures.Figure) -> None:
    """A curve for each recipe; the ends of all stages are marked."""
    (axes,) = pictures.panels(figure, 1)
    pictures.curves(axes, grouped(rows, "recipe"), "update", "lr")
    ends = {stage[-1].update for stage in grouped(rows, "recipe", "stage").values()}
    axes.set_xticks(sorted(ends), minor=True)
    axes.grid(which="minor", color="0.75")
    axes.set(xlabel="update", ylabel="learning rate")


def learning_rates(
    name: str, recipe: Recipe, updates_per_epoch: int | None = None
) -> list[LearningRate]:
    """About `POINTS` updates of a training, first, last and highest of each stage included.

    Raises:
        UserError: if a stage's length is given in epochs and `updates_per_epoch` is None.
    """
    for number, stage in enumerate(recipe.training.stages, start=1):
        if stage.epochs is not None and not updates_per_epoch:
            raise UserError(
                f"stage {number} lasts {stage.epochs} epochs, and the number of updates in an "
                "epoch depends on the corpus",
                hint="give --updates-per-epoch N",
            )
    rows = list(_every_update(name, recipe, updates_per_epoch or sys.maxsize))
    step = max(1, len(rows) // POINTS)
    chosen: list[LearningRate] = []
    for of_stage in grouped(rows, "stage").values():
        kept = {*of_stage[::step], of_stage[-1], max(of_stage, key=lambda row: row.lr)}
        chosen += sorted(kept, key=lambda row: row.update)
    return chosen


def _every_update(name: str, recipe: Recipe, updates_per_epoch: int) -> Iterator[LearningRate]:
    """The learning rate of every update of a training that no validation ends."""
    progress, model = Progress(), recipe.at_stage(0).model
    while not finished(recipe, progress):
        if is_over(recipe, progress):
            progress = begin_next(recipe, progress)
            model = recipe.at_stage(progress.stage).model
        update = progress.update + 1
        position = DataPosition(update // updates_per_epoch)
        progress = replace(progress, update=update, position=position)
        lr = learning_rate(
            recipe.training.schedule,
            update,
            width=recipe.model.width,
            max_updates=recipe.training.max_updates,
            offset=progress.schedule_offset,
        )
        depths = model.encoder.depth, model.decoder.depth
        yield LearningRate(name, progress.stage + 1, *depths, update, lr)


def _summary(stage: Sequence[LearningRate]) -> tuple[object, ...]:
    first, last, highest = stage[0], stage[-1], max(stage, key=lambda row: row.lr)
    updates = f"{first.update:,}-{last.update:,}"
    rates = f"{first.lr:.3e}", f"{highest.lr:.3e}", f"{highest.update:,}", f"{last.lr:.3e}"
    return first.stage, f"{first.encoder}+{first.decoder}", updates, *rates
