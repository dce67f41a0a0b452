"""A budget of time: the number of updates that fit into `max_minutes`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean
from typing import Literal

from nmtdeep.config.training import Training
from nmtdeep.data.plan import mixture_probabilities
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import FittedUpdates, Progress

# Updates that are timed before the number is fixed; the first ones of a process are slower.
TIMED, COLD = 50, 10
# A validation that was not timed yet counts as training on so many times its target tokens. Greedy
# translations took 2 to 3 times as long as that; the loss alone is the forward pass of an update.
TRANSLATED, SCORED = 3.0, 1 / 3
# Share of the remaining time that is kept for what cannot be known, such as a busier machine.
RESERVE = 0.05


class Pace:
    """Times the parts of a training until its number of updates is fixed.

    Args:
        valid_tokens: target tokens of the validation set.
        epoch_tokens: those that are trained on in an epoch of the first corpus.
        clock: seconds since some moment.
    """

    def __init__(
        self, valid_tokens: int, epoch_tokens: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._valid_tokens = valid_tokens
        self._epoch_tokens = epoch_tokens
        self._clock = clock
        self._since = clock()
        self._seconds: dict[str, list[float]] = {"update": [], "validation": [], "checkpoint": []}
        self._tokens = 0

    def lap(self, part: Literal["update", "validation", "checkpoint"], tokens: int = 0) -> None:
        """Note the end of a part, which began when the one before it ended, and target tokens."""
        now = self._clock()
        self._seconds[part].append(now - self._since)
        self._since = now
        self._tokens += tokens

    def plan(self, settings: Training, progress: Progress) -> FittedUpdates | None:
        """The length of the training, once enough updates were timed; None before and afterwards.

        The time that remains, less a reserve and a last validation and checkpoint, holds so many
        updates with their shares of validations and checkpoints.
        """
        if progress.last_update(settings) is not None or len(self._seconds["update"]) != TIMED:
            return None
        return _plan(settings, progress, *self.costs(settings))

    def costs(self, settings: Training) -> tuple[float, float]:
        """Seconds of an update with its share of validations and checkpoints, and of the end."""
        updates = self._seconds["update"]
        update = fmean(updates[min(COLD, len(updates) // 3) :])
        validation = update * self._valid_tokens * len(updates) / max(self._tokens, 1)
        validation *= TRANSLATED if settings.validation.bleu else SCORED
        validation = fmean(self._seconds["validation"] or [validation])
        checkpoint = fmean(self._seconds["checkpoint"] or [0.0])
        last = validation + checkpoint  # a new best is saved after its validation
        validations, checkpoints = map(
            self.interval, (settings.validation.every, settings.checkpoints.every)
        )
        return update + last / validations + checkpoint / checkpoints, last

    def interval(self, every: int | str) -> float:
        """Updates of an interval, such as 100 or `2 epochs`."""
        return every if isinstance(every, int) else int(every.split()[0]) * self.updates_of_epoch

    @property
    def updates_of_epoch(self) -> float:
        """Updates of an epoch of the first corpus."""
        return self.updates_of(self._epoch_tokens)

    def updates_of(self, tokens: float) -> float:
        """Updates for so many target tokens, by those that were timed."""
        return tokens * len(self._seconds["update"]) / max(self._tokens, 1)


def epoch_tokens(setup: Setup, corpus: str | None = None) -> float:
    """Target tokens of all corpora that are read in an epoch of one; None: of the first one."""
    corpora = setup.training_corpora
    name = corpus or next(iter(corpora))
    drawn = mixture_probabilities(setup.recipe.training.mixture, corpora)[name]
    return len(corpora[name].target.tokens) / drawn if drawn else math.inf


def continued(settings: Training, progress: Progress) -> Progress:
    """`progress` of a resumed run with the length that its own speed so far allows.

    Nothing changes if the length is fixed for these `max_minutes`, or too few updates are done.
    """
    done = progress.update - progress.stage_update
    if progress.last_update(settings) is not None or done < TIMED:
        return progress
    return replace(progress, plan=_plan(settings, progress, progress.seconds / done))


def _plan(
    settings: Training, progress: Progress, update: float, at_end: float = 0.0
) -> FittedUpdates:
    """The plan for updates of so many seconds, and so many after the last one."""
    assert settings.max_minutes is not None  # with `max_updates: auto`
    left = (settings.max_minutes * 60 - progress.seconds) * (1 - RESERVE) - at_end
    return FittedUpdates(
        settings.max_minutes, progress.update + max(0, int(left / max(update, 1e-6)))
    )
