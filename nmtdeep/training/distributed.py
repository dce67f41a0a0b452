"""The processes of a training as each of them sees them: sums of all, one that decides.

Every process computes its share of an update's batches, and after the sum of all gradients takes
the same step. The first one alone decides, writes and speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from enum import IntEnum
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nmtdeep.training.watch import Watch

# A process that is gone is noticed by the watch; waiting is for validations.
PATIENCE = timedelta(days=7)
BUCKET = 16 * 2**20


class LostProcessError(RuntimeError):
    """Another process of the crew is gone."""


class Order(IntEnum):
    """What the first process tells the others to do after an update."""

    GO_ON = 0
    LEAVE = 1
    GATHER_WEIGHTS = 2
    GATHER_MOMENTS = 3


class Crew:
    """The processes of a training as one of them sees it; by default it is alone.

    Args:
        rank: its number; 0 decides.
        size: how many there are.
        local_rank: its number among those of its machine; None: all are on one.
        local_size: how many are on its machine; None: all.
        watch: that tells of those that fail; None where nobody else is there.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        *,
        local_rank: int | None = None,
        local_size: int | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.local_rank = rank if local_rank is None else local_rank
        self.local_size = local_size or size
        self.watch = watch

    @property
    def asked(self) -> list[int]:
        """Signals by which other processes were asked to leave; the first one sees them."""
        return self.watch.asked if self.watch else []

    def add(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, the same bits in each of them.

        The tensors have one dtype and device; they travel in buckets of a few million numbers.

        Raises:
            LostProcessError: if another process died.
        """
        self._exchange(tensors, dist.all_reduce)

    def share(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by the first process's.

        Raises:
            LostProcessError: if another process died.
        """
        self._exchange(tensors, dist.broadcast, src=0)

    def agree(self, order: Order) -> Order:
        """The first process's `order`, in all of them.

        Raises:
            LostProcessError: if another process died.
        """
        if self.size == 1:
            return order
        told = torch.tensor([order])
        _together(dist.broadcast, told, src=0)
        return Order(int(told))

    def tell(self, text: str) -> str:
        """The first process's `text`, in all of them.

        Raises:
            LostProcessError: if another process died.
        """
        if self.size == 1:
            return text
        told = torch.tensor(list(text.encode()), dtype=torch.uint8)
        length = torch.tensor([len(told)])
        _together(dist.broadcast, length, src=0)
        told = told if self.rank == 0 else torch.empty(int(length), dtype=torch.uint8)
        _together(dist.broadcast, told, src=0)
        return bytes(told.tolist()).decode()

    def _exchange(
        self, tensors: list[Tensor], operation: Callable[..., Any], **options: Any
    ) -> None:
        if self.size == 1:
            return
        # All are on their way before the first is unpacked. Activations are gone by then, so that
        # the copies do not raise the peak of an update's memory.
        sent = []
        for bucket in _buckets(tensors):
            alone = len(bucket) == 1 and bucket[0].is_contiguous()
            flat = bucket[0] if alone else torch.cat([one.flatten() for one in bucket])
            sent.append((bucket, flat, _together(operation, flat, async_op=True, **options)))
        for bucket, flat, work in sent:
            _together(work.wait)
            if flat is not bucket[0]:
                parts = torch.split(flat, [one.numel() for one in bucket])
                shaped = [part.view(one.shape) for part, one in zip(parts, bucket, strict=True)]
                torch._foreach_copy_(bucket, shaped)


ALONE = Crew()


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    held = 0
    for tensor in tensors:
        if bucket and held + tensor.numel() > BUCKET:
            yield bucket
            bucket, held = [], 0
        bucket.append(tensor)
        held += tensor.numel()
    if bucket:
        yield bucket


def _together(operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return operation(*arguments, **options)
    except RuntimeError as error:
        raise LostProcessError(str(error)) from error
