"""The processes of a training, called ranks as in torch.distributed: what they exchange."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from nmtdeep.errors import UserError

T = TypeVar("T")
CPU = torch.device("cpu")
RESUME = "run the same command to resume from the last checkpoint"


class LostRankError(UserError):
    """The connection to another rank is broken."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a training as one of them sees them; by default there is only one.

    Each rank computes its share of an update's batches. After the sum of all gradients each takes
    the same step, so that all hold the same weights. Rank 0 writes.

    Every method but the properties is a collective: all ranks must call it, and it raises a
    LostRankError if the connection to another one is broken.

    Args:
        rank: number of this rank.
        size, local_size: number of ranks, and of those on this machine.
        device: of this rank's model.
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def all_reduce(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, the same bits in each of them.

        The tensors have one dtype and device.
        """
        self._exchange(tensors, dist.all_reduce)

    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by that of rank 0."""
        self._exchange(tensors, dist.broadcast, src=0)

    def broadcast(self, value: T) -> T:
        """The value of rank 0."""
        if self.size == 1:
            return value
        values = [value]
        _connected(dist.broadcast_object_list, values, src=0, device=CPU)
        return values[0]

    def all_reduce_max(self, *numbers: float) -> list[float]:
        """The largest of each of the numbers over all ranks."""
        if self.size == 1:
            return list(numbers)
        largest = torch.tensor(numbers, dtype=torch.float64)
        _connected(dist.all_reduce, largest, op=dist.ReduceOp.MAX)
        return largest.tolist()

    def _exchange(
        self, tensors: list[Tensor], operation: Callable[..., Any], **options: Any
    ) -> None:
        if self.size == 1 or not tensors:
            return
        # But for those that graphs keep, activations are gone by then, and leave room for the copy.
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        _connected(operation, flat, **options)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        shaped = [part.view(old.shape) for part, old in zip(parts, tensors, strict=True)]
        torch._foreach_copy_(tensors, shaped)


ALONE = Ranks()


def _connected(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return operation(*arguments, **options)
    except RuntimeError as error:
        what = f"lost the connection to another rank ({error})"
        raise LostRankError(what, hint=RESUME) from error
