"""The sum of gradients over ranks, on its way while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn

from nmtdeep.training.ranks import ALONE, Ranks

# Bytes of gradients that are sent together: DistributedDataParallel's default.
BUCKET = 25 * 2**20


class GradientSum:
    """Replaces each gradient by its sum over all ranks, the same bits in each of them.

    Parameters are put into buckets, the last ones first, because their gradients are computed
    first. A bucket is sent once it and those before it are complete (Li et al. 2020, PyTorch
    Distributed, section 3.2), so that all ranks send in the same order.

    Args:
        parameters: in the order of the forward pass.
        ranks: that sum; with one rank, or sharded parameters, nothing is sent.
        bucket: bytes that are sent together, at least.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], ranks: Ranks = ALONE, bucket: int = BUCKET
    ) -> None:
        self.ranks = ranks
        self.buckets: list[list[nn.Parameter]] = []
        self._missing: list[int] = []
        self._sent: list[Callable[[], None]] = []
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        filled = bucket
        for parameter in reversed(trained) if ranks.size > 1 else ():
            if filled >= bucket:
                self.buckets.append([])
                filled = 0
            self.buckets[-1].append(parameter)
            filled += parameter.nbytes
            hook = partial(self._arrived, len(self.buckets) - 1)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    def start(self) -> None:
        """The next backward pass of this rank is the last one before the sum."""
        self._missing = [len(members) for members in self.buckets]

    def finish(self) -> None:
        """Send what is left, and wait for all sums; a rank without a gradient adds zeros.

        All ranks must call this.

        Raises:
            LostRankError: if the connection to another rank is broken.
        """
        while len(self._sent) < len(self.buckets):
            self._send()
        for received in self._sent:
            received()
        self._missing, self._sent = [], []

    def _arrived(self, number: int, _parameter: Tensor) -> None:
        """One gradient of a bucket is complete, if this is the last backward pass."""
        if not self._missing:
            return
        self._missing[number] -= 1
        while len(self._sent) < len(self.buckets) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        members = self.buckets[len(self._sent)]
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in members
        ]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        parts = torch.split(flat, [parameter.numel() for parameter in members])
        for parameter, part in zip(members, parts, strict=True):
            parameter.grad = part.view_as(parameter)
        self._sent.append(self.ranks.start_adding(flat))
