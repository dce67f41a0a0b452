"""The learning-rate range test (Smith 2017): the loss while the rate grows by the update."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import torch

from nmtdeep.analysis.measurement import Column, Measurement, typed
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.devices import kept_settings
from nmtdeep.errors import DivergenceError
from nmtdeep.training.feed import upcoming
from nmtdeep.training.opening import check
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import check_run
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import Trainer

UPDATES, LOWEST, HIGHEST = 200, 1e-5, 1.0
# Weight of the past in the smoothed loss.
SMOOTHING = 0.9
# The test ends where the smoothed loss is so many times its lowest value.
LOST = 1.5
ROWS = 15  # approximate number of rows of the table


class Trial(NamedTuple):
    """One update: the label-smoothed loss per target token before it, and its mean so far."""

    update: int
    lr: Annotated[float, Column("learning rate", role="x", log=True)]
    loss: Annotated[float, Column("loss", "nats per target token", role="y")]
    smoothed: Annotated[float, Column("smoothed loss", "nats per target token", role="y")]


@kept_settings()
def measure(recipe: Recipe, corpora: DataDirectory, device: torch.device) -> Measurement:
    """Some updates of a new training, with rates of a geometric series.

    The model, and the optimizer, are discarded. The test ends early when the loss is lost.
    """
    with tempfile.TemporaryDirectory() as scratch:
        place = check_run(Path(scratch), recipe, corpora.pipeline)
        place.begin()
        setup = check(place.recipe, corpora, Ranks(device=device)).at_stage(0)
        trainer = Trainer(setup, place.newest())  # the weights of training.start_from, if any
    rows: list[Trial] = []
    mean = 0.0
    feed = upcoming(setup, Progress())
    for number, coming in zip(range(1, UPDATES + 1), feed, strict=False):
        # LOWEST (HIGHEST / LOWEST)^((n - 1) / (N - 1)), n the number of N updates.
        lr = LOWEST * (HIGHEST / LOWEST) ** ((number - 1) / (UPDATES - 1))
        result = trainer.step.update(coming.batches, number, lr)
        loss = result.loss / result.target_tokens
        mean = SMOOTHING * mean + (1 - SMOOTHING) * loss
        smoothed = mean / (1 - SMOOTHING**number)
        lowest = min((row.smoothed for row in rows), default=loss)
        if result.is_bad or not smoothed <= LOST * lowest:
            break
        rows.append(Trial(number, lr, loss, smoothed))
    if not rows:
        what = "the loss of the first update is not finite"
        raise DivergenceError(what, hint="measure the model: nmtdeep analyze initialization")
    settings, best = setup.recipe.training, suggestion(rows)
    conditions = {
        "suggested lr": f"{best:.1e}",
        "optimizer": typed(settings.optimizer),
        "tokens per update": settings.batches.tokens_per_update,
        "data": corpora.fingerprint[:16],
    }
    some = rows[:: max(1, len(rows) // ROWS)]
    summary = [row._asdict() | {"lr": f"{row.lr:.1e}"} for row in some]
    title, note = f"Learning-rate range test, suggestion: {best:g}", f"suggestion: --lr {best:.1e}"
    return Measurement(title, rows, conditions, summary, note=note)


def suggestion(rows: Sequence[Trial]) -> float:
    """Half the rate at which the smoothed loss is lowest, with two digits.

    Beyond that rate updates undo one another, and a training spends many updates near its peak. The
    smoothed loss is late by the mean age of what it is the mean of.
    """
    lowest = min(range(len(rows)), key=lambda place: rows[place].smoothed)
    late = round(SMOOTHING / (1 - SMOOTHING))
    return float(f"{rows[max(0, lowest - late)].lr / 2:.1e}")
