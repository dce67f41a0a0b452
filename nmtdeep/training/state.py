"""Where a training stands: everything besides weights and moments that resuming needs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from torch import Tensor, nn

from nmtdeep import checkpoint
from nmtdeep.data.windows import Place
from nmtdeep.errors import CheckpointError
from nmtdeep.training.sharding import like

# Fields that checkpoints of older versions do not have: their epochs had one window, and they
# ended at the first bad update.
LATER = {"window": 0, "before_window": 0, "bad_updates": 0}


@dataclass(frozen=True)
class Progress:
    """Position in the data and in the search for the best model.

    Attributes:
        update: updates done.
        epoch: epochs done.
        next_in_epoch: updates of the current epoch that are done.
        window: windows of the current epoch that are done.
        before_window: updates of the current epoch that lie in those windows.
        seconds: time spent training, restarts included.
        target_tokens: target tokens trained on.
        best: best validation figure so far, larger is better (a loss is negated).
        best_update: update of that figure.
        stale: validations since then.
        score: figure of this very update, if it was validated.
        scaler: state of fp16's loss scaler; empty in other precisions.
        stage: number of the stage, from 0, of a training from shallow to deep.
        stage_update: updates done when it began.
        stage_epoch: epochs done when it began.
        schedule_offset: updates that the learning-rate schedule does not count.
        bad_updates: the newest updates, in a row, that changed nothing for want of finite numbers.
    """

    update: int = 0
    epoch: int = 0
    next_in_epoch: int = 0
    seconds: float = 0.0
    target_tokens: int = 0
    best: float | None = None
    best_update: int = 0
    stale: int = 0
    score: float | None = None
    scaler: dict[str, Any] = field(default_factory=dict)
    stage: int = 0
    stage_update: int = 0
    stage_epoch: int = 0
    schedule_offset: int = 0
    window: int = 0
    before_window: int = 0
    bad_updates: int = 0

    @property
    def place(self) -> Place:
        """The position in the data."""
        return Place(self.epoch, self.next_in_epoch, self.window, self.before_window)

    @property
    def current_epoch(self) -> int:
        """The epoch, from 1, that the newest update belongs to."""
        return self.epoch if self.update and not self.next_in_epoch else self.epoch + 1

    @property
    def is_best(self) -> bool:
        """Whether this very update was validated, and better than all before."""
        return self.score is not None and self.best_update == self.update

    def moved(self, place: Place) -> Progress:
        """At this place in the data."""
        return replace(self, **place._asdict())

    def updated(self, place: Place, *, bad: bool = False) -> Progress:
        """After one more update, `bad` or not, at this place in the data."""
        row = self.bad_updates + 1 if bad else 0
        return replace(self.moved(place), update=self.update + 1, score=None, bad_updates=row)

    def validated(self, score: float) -> Progress:
        """After a validation that gave `score`, which counts as no better if it is no number."""
        if math.isnan(score):
            return replace(self, stale=self.stale + 1)
        if self.best is None or score > self.best:
            return replace(self, score=score, best=score, best_update=self.update, stale=0)
        return replace(self, score=score, stale=self.stale + 1)

    def to_json(self) -> dict[str, Any]:
        """For `state.json`."""
        return asdict(self)

    @classmethod
    def of(cls, path: Path) -> Progress:
        """Where the training of a checkpoint stood."""
        return cls.from_json(checkpoint.read_state(path))

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Progress:
        """Read back; raises CheckpointError if a field is missing or no such value can be."""
        try:
            values = {name: (LATER | state)[name] for name in cls.__dataclass_fields__}
            found = TypeAdapter(cls).validate_python(values)
            if any(isinstance(one, int) and one < 0 for one in asdict(found).values()):
                raise ValueError("a count is negative")
            return found
        except ValueError as error:
            reason = str(error).replace("\n", " ")
            raise CheckpointError(
                f"state.json says no position in a training ({reason}): use another checkpoint"
            ) from error
        except KeyError as error:
            raise CheckpointError(
                f"state.json has no {error}: this checkpoint cannot be trained on; start a new run"
            ) from error


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
    """Put saved moments back, all or none.

    Raises:
        CheckpointError: if they belong to other parameters.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    wanted = {
        parameter: {moment: f"{moment}/{names[id(parameter)]}" for moment in group["moments"]}
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    if set(tensors) != {key for keys in wanted.values() for key in keys.values()}:
        raise CheckpointError(
            "the optimizer's moments belong to another model or optimizer: start a new run with "
            "--out"
        )
    for parameter, keys in wanted.items():
        for key in keys.values():
            if tensors[key].shape not in (parameter.shape, torch.Size()):
                raise CheckpointError(
                    f"{key} is {tuple(tensors[key].shape)}, its parameter "
                    f"{tuple(parameter.shape)}: use another checkpoint of the run"
                )
    for parameter, keys in wanted.items():
        # Fused Adam keeps its step counters beside the parameters.
        optimizer.state[parameter] = {
            moment: like(tensors[key], parameter) for moment, key in keys.items()
        }
