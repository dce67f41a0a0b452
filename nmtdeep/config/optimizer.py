"""Recipe sections `training.optimizer` and `training.schedule`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from nmtdeep.config.section import Count, NotNegative, Positive, Probability, Section
from nmtdeep.config.variant import OneOf, Variant

if TYPE_CHECKING:
    from nmtdeep.config.model import Model


class Moments(Section):
    """The common settings of both optimizers: those of Adam."""

    betas: tuple[Probability, Probability] = Field((0.9, 0.98), description="moment decay rates")
    epsilon: Positive = Field(1e-8, description="added to the root of the second moment")
    weight_decay: NotNegative = Field(0.0, description="decoupled, times the learning rate")


class Adam(Moments):
    """Adam with decoupled weight decay; epsilon is outside the root."""

    type: Literal["adam"] = "adam"


class Muon(Moments):
    """Orthogonalized momentum for the layers' matrices, Adam for the rest (Jordan et al. 2024)."""

    type: Literal["muon"] = "muon"
    momentum: Probability = Field(0.95, description="decay rate of the matrices' momentum")


class OptimizerVariant(Variant):
    """An optimizer of another package."""

    slot: ClassVar[str] = "optimizer"

    def build(self, transformer: Any) -> Any:
        """A `torch.optim.Optimizer` of the parameters that need a gradient.

        The learning rate of each group is set before each update. All else that changes must be
        tensors of its `state`, which checkpoints keep. It is built twice: the first one takes a
        trial step, which is undone, and what cannot train or resume is refused.
        """
        raise NotImplementedError


Optimizer = OneOf[Adam | Muon | OptimizerVariant]


class InverseSquareRoot(Section):
    """Linear warm-up to the peak, then peak * sqrt(warmup / update) (fairseq's inverse_sqrt)."""

    type: Literal["inverse_square_root"] = "inverse_square_root"
    lr: Positive = Field(7e-4, description="peak learning rate")
    warmup_updates: Count = Field(4000, description="updates until the peak")
    warmup_init_lr: NotNegative = Field(1e-7, description="learning rate of the first update")


class Noam(Section):
    """scale * d^-0.5 * min(update^-0.5, update * warmup^-1.5) (Vaswani et al. 2017, Eq. 3).

    d is the decoder's width.
    """

    type: Literal["noam"] = "noam"
    scale: Positive = Field(1.0, description="multiplies the schedule")
    warmup_updates: Count = Field(4000, description="updates until the peak")


class LinearDecay(Section):
    """Linear warm-up to the peak, then linearly down to zero after training.max_updates.

    With `max_updates: auto` a warm-up of more than half of all updates ends there, below the peak.
    """

    type: Literal["linear"] = "linear"
    lr: Positive = Field(7e-4, description="peak learning rate")
    warmup_updates: Count = Field(4000, description="updates until the peak")


class ScheduleVariant(Variant):
    """A learning-rate schedule of another package."""

    slot: ClassVar[str] = "schedule"
    warmup_updates: Count = Field(4000, description="updates until the peak")

    def learning_rate(self, update: int, model: Model, last: int | None) -> float:
        """The learning rate of update number `update`, from 1.

        Args:
            last: number of the last update; None while it is unknown (`max_updates: auto`).
        """
        raise NotImplementedError


Schedule = OneOf[InverseSquareRoot | Noam | LinearDecay | ScheduleVariant]
