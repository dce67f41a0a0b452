"""How long a training would take, from a trial of some of its updates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import opened
from nmtdeep.devices import kept_settings, resolve_device
from nmtdeep.tables import describe
from nmtdeep.training.budget import TIMED, Pace, epoch_tokens
from nmtdeep.training.feed import upcoming
from nmtdeep.training.launch import use_threads
from nmtdeep.training.memory import peak_memory
from nmtdeep.training.opening import check
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup, TrainingJob
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import Trainer
from nmtdeep.training.validation import validate
from nmtdeep.units import counted, duration, size

# A trial has at least so many updates, and ends after so many seconds.
FEWEST, SECONDS = 6, 60.0


class StageEstimate(NamedTuple):
    """A stage of a training.

    Attributes:
        updates: its length.
        epochs: of the first training corpus.
        update: seconds of an update, with its share of validations.
        end: seconds after the last update.
        timed: updates of the trial.
        memory: bytes at the peak of the trial.
    """

    updates: float
    epochs: float
    update: float
    end: float
    timed: int
    memory: int


@kept_settings()
def estimate(job: TrainingJob, *, clock: Callable[[], float] = time.perf_counter) -> str:
    """Updates, epochs and hours of a training by one process, as a small table.

    Each stage is tried for 50 updates, or after a minute fewer (but six), and a validation, with a
    model that is thrown away.

    Raises:
        UserError: as `training.loop.train`.
    """
    use_threads(job.threads, 1)
    setup = check(job.recipe, opened(job.data), Ranks(device=resolve_device(job.device)))
    stages = [*_stages(setup, clock)]
    updates = sum(each.updates for each in stages)
    seconds = sum(each.updates * each.update + each.end for each in stages)
    lines = [("updates", f"{updates:,.0f}, {sum(each.epochs for each in stages):,.1f} epochs")]
    for number, stage in enumerate(stages, 1):
        what = f"stage {number}: {stage.updates:,.0f} updates, " if len(stages) > 1 else ""
        trial = f"{stage.update:.3g} s an update, validations included"
        lines.append(("speed", f"{what}{trial} ({counted(stage.timed, 'update')} timed)"))
    lines.append(("memory", f"{size(max(each.memory for each in stages))}, measured"))
    patience = job.recipe.training.validation.patience
    ends = f"; patience {patience} may end it earlier" if patience else ""
    lines.append(("time", f"{duration(seconds)} (h:mm:ss), without final scores{ends}"))
    return describe(lines)


def _stages(setup: Setup, clock: Callable[[], float]) -> Iterator[StageEstimate]:
    """The stages up to the end of the training, whichever of its limits that is."""
    training, done, epochs, seconds = setup.recipe.training, 0.0, 0.0, 0.0
    for number in range(len(training.stages) or 1):
        at = setup.at_stage(number)
        pace, timed, memory = _trial(at, number, clock)
        update, end = pace.costs(training)
        an_epoch = pace.updates_of_epoch
        length = float("inf")
        if training.stages:
            stage = training.stages[number]
            if stage.updates or stage.epochs:
                an_epoch_of = pace.updates_of(epoch_tokens(at, stage.epochs_of))
                length = stage.updates or (stage.epochs or 0) * an_epoch_of
        if training.max_updates != "auto":
            length = min(length, training.max_updates - done)
        if training.max_epochs is not None:
            length = min(length, (training.max_epochs - epochs) * an_epoch)
        if training.max_minutes is not None:
            length = min(length, (training.max_minutes * 60 - seconds - end) / update)
        length = max(length, 0.0)
        validations = length / pace.interval(training.validation.every)
        end *= math.ceil(validations) - validations  # the last one may be one of an interval
        yield StageEstimate(length, length / an_epoch, update, end, timed, memory)
        done, epochs = done + length, epochs + length / an_epoch
        seconds += length * update + end


def _trial(setup: Setup, stage: int, clock: Callable[[], float]) -> tuple[Pace, int, int]:
    """Some updates of a stage and a validation: pace, number of updates, bytes at the peak."""
    trainer, progress = Trainer(setup), Progress(stage=stage)
    trainer.check_largest_batch(progress.position)
    memory = peak_memory(setup.device)
    pace = Pace(len(setup.data.corpus("valid").target.tokens), epoch_tokens(setup), clock)
    began, timed = clock(), 0
    for timed, coming in enumerate(upcoming(setup, progress), 1):
        trainer.train(coming.batches, progress)
        progress = progress.after_update(coming.position)
        last = timed == TIMED or (timed >= FEWEST and clock() - began > SECONDS)
        if last:
            trainer.finish(progress)
        pace.lap("update", coming.batches.target_tokens)
        if last:
            break
    validate(trainer.validation_model(), replace(setup, recipe=_short(setup.recipe)))
    pace.lap("validation")
    return pace, timed, memory


def _short(recipe: Recipe) -> Recipe:
    """The recipe with translations as long as their source, since this model does not end them."""
    lengths = {"max_length_factor": 1.0, "max_length_constant": 1}
    return recipe.model_copy(update={"decoding": recipe.decoding.model_copy(update=lengths)})
