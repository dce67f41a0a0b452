"""Learning rates over the updates of a training, its stages included (Li et al. 2020, Figure 5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nmtdeep.analysis.findings import Findings, signed
from nmtdeep.analysis.panels import Curve, Curves, Picture
from nmtdeep.config import Recipe
from nmtdeep.errors import UserError
from nmtdeep.tables import table
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.stages import restarted
from nmtdeep.training.state import Progress

POINTS = 1000  # about so many of a curve


@dataclass(frozen=True)
class Rate:
    """The learning rate of one update, from 1.

    Attributes:
        stage: from 1.
        encoder, decoder: layers that the model has then.
    """

    recipe: str
    stage: int
    encoder: int
    decoder: int
    update: int
    lr: float


@dataclass(frozen=True)
class Span:
    """The updates of one stage, `first` to `last`.

    Attributes:
        offset: updates that the schedule does not count.
    """

    first: int
    last: int
    offset: int


def stage_spans(recipe: Recipe, updates_per_epoch: int | None) -> list[Span]:
    """The updates of each stage; of a training without stages, of the whole.

    Raises:
        UserError: if a length is given in epochs, and nobody says how long one is.
    """
    training = recipe.training
    end = training.max_updates
    if training.max_epochs is not None and updates_per_epoch:
        end = min(end, training.max_epochs * updates_per_epoch)
    progress, spans = Progress(), []
    for number, stage in enumerate(training.stages or (None,)):
        if number and training.growth.restart_lr:
            progress = restarted(recipe, progress)
        last = end
        if stage is not None and stage.updates is not None:
            last = min(end, progress.update + stage.updates)
        elif stage is not None and stage.epochs is not None:
            if not updates_per_epoch:
                raise UserError(
                    f"stage {number + 1} lasts {stage.epochs} epochs, and how many updates that is "
                    "depends on the corpus: give --updates-per-epoch N"
                )
            last = min(end, progress.update + stage.epochs * updates_per_epoch)
        if last > progress.update:
            spans.append(Span(progress.update + 1, last, progress.schedule_offset))
        progress = Progress(update=last, schedule_offset=progress.schedule_offset)
    return spans


def rates(name: str, recipe: Recipe, updates_per_epoch: int | None = None) -> list[Rate]:
    """About `POINTS` updates of a training, first and last of each stage and each peak included."""
    spans = stage_spans(recipe, updates_per_epoch)
    step = max(1, spans[-1].last // POINTS)
    found = []
    for number, span in enumerate(spans):
        model = recipe.at_stage(number).model
        for update in _chosen(recipe, span, step):
            lr = learning_rate(
                recipe.training.schedule,
                update,
                width=recipe.model.width,
                max_updates=recipe.training.max_updates,
                offset=span.offset,
            )
            found.append(
                Rate(name, number + 1, model.encoder.depth, model.decoder.depth, update, lr)
            )
    return found


def _chosen(recipe: Recipe, span: Span, step: int) -> list[int]:
    """Updates of a stage; the peak lies where the warm-up ends, or one behind it."""
    warm = span.offset + recipe.training.schedule.warmup_updates
    peaks = (warm, warm + 1)
    edges = {span.first, span.last, *(one for one in peaks if span.first <= one <= span.last)}
    return sorted(edges | set(range(span.first, span.last + 1, step)))


def find(recipes: Mapping[str, Recipe], updates_per_epoch: int | None) -> Findings:
    """The learning rates of some recipes; see `stage_spans`."""
    found = {name: rates(name, one, updates_per_epoch) for name, one in recipes.items()}
    rows = [rate for some in found.values() for rate in some]
    headings = ("stage", "layers", "updates", "first lr", "highest", "at update", "last")
    columns = dict.fromkeys(headings, "right")
    made: dict[str, Any] = {name: _formula(recipe) for name, recipe in recipes.items()}
    if updates_per_epoch:
        made["updates per epoch"] = updates_per_epoch
    tables = [table(columns, _summary(some), title=name) for name, some in found.items()]
    return Findings(rows, tables, lambda: _picture(found), made, signed(made))


def _formula(recipe: Recipe) -> str:
    """The schedule with its numbers."""
    chosen = recipe.training.schedule.model_dump()
    kind = str(chosen.pop("type"))
    return " ".join([kind, *(f"{key}={value:g}" for key, value in chosen.items())])


def _summary(rows: Sequence[Rate]) -> Iterator[tuple[object, ...]]:
    """A line for each stage of one recipe."""
    for number in dict.fromkeys(row.stage for row in rows):
        stage = [row for row in rows if row.stage == number]
        first, last = stage[0], stage[-1]
        highest = max(stage, key=lambda rate: rate.lr)
        yield (
            first.stage,
            f"{first.encoder}+{first.decoder}",
            f"{first.update:,}-{last.update:,}",
            f"{first.lr:.3e}",
            f"{highest.lr:.3e}",
            f"{highest.update:,}",
            f"{last.lr:.3e}",
        )


def _picture(found: Mapping[str, Sequence[Rate]]) -> Picture:
    """One curve for each recipe; where all have the same stages, their ends are marked."""
    curves = [
        Curve([rate.update for rate in some], [rate.lr for rate in some], name)
        for name, some in found.items()
    ]
    ends = {
        tuple(before.update for before, after in pairwise(some) if before.stage != after.stage)
        for some in found.values()
    }
    breaks = ends.pop() if len(ends) == 1 else ()
    return Picture([Curves(curves, "update", "learning rate", breaks=breaks)])
