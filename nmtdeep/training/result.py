"""What an update results in, on its way from a device to the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from nmtdeep.data.batch import RankBatches


@dataclass(frozen=True)
class UpdateResult:
    """The result of one update: sums over its target tokens in nats.

    Attributes:
        loss: label-smoothed loss, with the regularizer's penalty if there is one.
        nll: negative log-likelihood.
        gradient_norm: before clipping.
        skipped: True if loss or gradients were not finite and nothing was changed.
        scale: fp16's loss scale after it; 0 in other precisions.
        max_tokens: if memory ran out, the new limit on the tokens of a batch; else 0.
        number: of the update.
        lr: its learning rate.
        layer_norms: gradient norms of layers by `outer_layers`, if the recipe records them.
    """

    loss: float
    nll: float
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    gradient_norm: float
    skipped: bool
    scale: float = 0.0
    max_tokens: int = 0
    number: int = 0
    lr: float = 0.0
    layer_norms: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_bad(self) -> bool:
        """Whether it was skipped without a loss scale that explains it."""
        return self.skipped and not self.scale


class Accumulated(NamedTuple):
    """The sums of an update whose gradients are in the model.

    Attributes:
        number: of the update.
        batches: of it that this rank computed.
        sums: `(2,)` smoothed loss and nll, of this rank.
        max_tokens: as of `UpdateResult`.
    """

    number: int
    batches: RankBatches
    sums: Tensor
    max_tokens: int


def copy_to_host(numbers: Tensor) -> Callable[[], list[float]]:
    """Copy `(n,)` numbers of a device to the host; the call waits until they have arrived."""
    copy = numbers.to("cpu", non_blocking=numbers.is_cuda)
    arrived = torch.cuda.Event() if numbers.is_cuda else None  # type: ignore[no-untyped-call]
    if arrived:
        arrived.record()

    def read() -> list[float]:
        if arrived:
            arrived.synchronize()
        return copy.tolist()

    return read
