"""The state of a training: everything that resuming needs, except weights and moments."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import FiniteFloat, NonNegativeInt, TypeAdapter, ValidationError

from nmtdeep import checkpoint
from nmtdeep.config.training import Training
from nmtdeep.data.position import DataPosition, Position
from nmtdeep.errors import CheckpointError

if TYPE_CHECKING:  # torch is imported when a function needs it
    import torch
    from torch import Tensor, nn

START = DataPosition()
LATER = ("plan", "joules")  # which states of 2026-11 lack
OLDER_NAME = "stale"  # of `validations_since_best`, until 2026-11


@dataclass(frozen=True)
class FittedUpdates:
    """The number of updates of a training that fit into so many minutes, its `max_minutes`."""

    minutes: float
    updates: NonNegativeInt


@dataclass(frozen=True)
class Progress:
    """Position in the data and in the search for the best model.

    Attributes:
        update: updates done.
        position: in the data.
        seconds: time spent training, restarts included.
        joules: energy of this machine's devices while it trained (`energy.Meter`); None where no
            counter could be read.
        target_tokens: target tokens trained on.
        best: best validation figure so far, larger is better (a loss is negated).
        best_update: update of that figure.
        validations_since_best: validations since then.
        score: figure of this very update, if it was validated.
        scaler: state of fp16's loss scaler; empty in other precisions.
        stage: number of the stage, from 0, of a training from shallow to deep.
        stage_update: updates done when it began.
        stage_epoch: epochs begun when it began.
        schedule_offset: updates that the learning-rate schedule does not count.
        bad_updates: number of the newest updates, in a row, that changed nothing because loss or
            gradients were not finite.
        plan: its length, under `max_updates: auto`; None as long as it is not fixed.
    """

    update: NonNegativeInt = 0
    position: Position = START
    seconds: FiniteFloat = 0.0
    joules: FiniteFloat | None = None
    target_tokens: NonNegativeInt = 0
    best: float | None = None
    best_update: NonNegativeInt = 0
    validations_since_best: NonNegativeInt = 0
    score: float | None = None
    scaler: dict[str, Any] = field(default_factory=dict)
    stage: NonNegativeInt = 0
    stage_update: NonNegativeInt = 0
    stage_epoch: NonNegativeInt = 0
    schedule_offset: NonNegativeInt = 0
    bad_updates: NonNegativeInt = 0
    plan: FittedUpdates | None = None

    @property
    def epoch(self) -> int:
        """Epochs done; of several corpora, those of the first."""
        return self.position.epoch

    @property
    def current_epoch(self) -> int:
        """The epoch, from 1, that the newest update belongs to."""
        return self.epoch + (not self.update or self.position.next_in_epoch > 0)

    @property
    def current_epochs(self) -> dict[str, int]:
        """As `current_epoch`, of each of several corpora by its name; empty for a single one."""
        if isinstance(self.position, DataPosition):
            return {}
        corpora = self.position.corpora.items()
        return {name: each.epoch + (each.next_in_epoch > 0) for name, each in corpora}

    @property
    def is_best(self) -> bool:
        """Whether this very update was validated, and better than all before."""
        return self.score is not None and self.best_update == self.update

    def completes(self, interval: int | str, before: Progress) -> bool:
        """Whether the newest update is the last one of an interval.

        Args:
            interval: updates, or epochs as in `2 epochs`; of several corpora, those of the first.
            before: the progress before this update.
        """
        if isinstance(interval, int):
            return self.update % interval == 0
        epochs = int(interval.split()[0])
        return self.epoch // epochs > before.epoch // epochs

    def last_update(self, settings: Training) -> int | None:
        """Number of the last update by `max_updates`; None if it is `auto` and not fixed.

        A plan for another `max_minutes` than that of `settings` does not count.
        """
        if settings.max_updates != "auto":
            return settings.max_updates
        fits = self.plan is not None and self.plan.minutes == settings.max_minutes
        return self.plan.updates if self.plan and fits else None

    def after_update(self, position: Position) -> Progress:
        """After one more update, at this position in the data."""
        return replace(self, update=self.update + 1, position=position, score=None)

    def after_result(self, *, bad: bool) -> Progress:
        """With the result of one more update, `bad` or not."""
        return replace(self, bad_updates=self.bad_updates + 1 if bad else 0)

    def validated(self, score: float) -> Progress:
        """After a validation with this `score`; NaN counts as worse than the best."""
        later = replace(self, validations_since_best=self.validations_since_best + 1)
        if math.isnan(score):
            return later
        if self.best is None or score > self.best:
            later = replace(later, best=score, best_update=self.update, validations_since_best=0)
        return replace(later, score=score)

    def to_json(self) -> dict[str, Any]:
        """For `state.json`, which has a plan only if there is one."""
        state = {**asdict(self), "position": self.position.to_json()}
        return {name: value for name, value in state.items() if name != "plan" or value}

    @classmethod
    def of(cls, path: Path) -> Progress:
        """The progress of the training that wrote a checkpoint."""
        return cls.from_json(checkpoint.read_state(path))

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Progress:
        """Read back.

        Raises:
            CheckpointError: if a field is missing or has an impossible value.
        """
        names = cls.__dataclass_fields__
        if OLDER_NAME in state:
            state = {"validations_since_best": state[OLDER_NAME], **state}
        wrong = [name for name in names if name not in state and name not in LATER]
        try:
            known = {name: value for name, value in state.items() if name in names}
            progress = TypeAdapter(cls).validate_python(known)
        except ValidationError as error:
            wrong += dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
        if wrong:
            raise CheckpointError(
                f"not a valid training state ({', '.join(wrong)})",
                where=checkpoint.STATE,
                hint="use another checkpoint, or start a new run with --out",
            )
        return progress


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's moments by parameter name: `<moment>/<parameter>`."""
    return {
        f"{moment}/{name}": value
        for name, parameter in model.named_parameters()
        for moment, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    """Put saved moments back, all or none; a parameter that never moved may have none.

    Raises:
        CheckpointError: if they belong to other parameters.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    known: set[str] = set()
    fits = True
    restored: dict[Tensor, dict[str, Tensor]] = {}
    for group in optimizer.param_groups:
        # As torch does: a fused or capturable optimizer counts steps on the device of parameters.
        counts_there = group.get("fused") or group.get("capturable")
        for parameter, shapes in zip(group["params"], group["moments"], strict=True):
            keys = {moment: f"{moment}/{names[id(parameter)]}" for moment in shapes}
            saved = {moment: tensors[key] for moment, key in keys.items() if key in tensors}
            known.update(keys.values())
            fits &= not saved or {moment: each.shape for moment, each in saved.items()} == shapes
            restored[parameter] = {
                moment: each if moment == "step" and not counts_there else each.to(parameter.device)
                for moment, each in saved.items()
            }
    if not fits or tensors.keys() - known:
        raise CheckpointError(
            "the optimizer's moments belong to another model or optimizer",
            hint="start a new run with --out",
        )
    optimizer.state.update((parameter, state) for parameter, state in restored.items() if state)
