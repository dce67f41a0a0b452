"""Weighted sums of all outputs so far, each output read once for a sum and once for each gradient.

A layer that reads all layers below it reads much memory: at 48 layers 1,176 outputs, and as many
again for the gradients of weights and outputs. So outputs stand side by side in one buffer, as the
rows of a matrix whose product with the weights is the sum. Their gradients come from a like buffer,
when the last reader's is there: added up reader by reader they would be read and written for each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Sums:
    """The outputs of one forward pass and what has been summed of them.

    Args:
        entries: how many outputs there will be at most.
        like: `(..., width)` tensor of an output's shape, dtype and device.
    """

    def __init__(self, entries: int, like: Tensor) -> None:
        self.shape = like.shape
        self.count = 0
        self._values = like.new_empty(entries, like.numel())
        self._gradients: Tensor | None = None
        self._weights: dict[int, tuple[int, Tensor]] = {}
        self._readers: list[int] = []

    def start(self) -> Tensor:
        """The token of no outputs.

        A token stands for all outputs so far in autograd's graph. It is not kept here, or graph and
        buffers would hold each other in memory.
        """
        return self._values.new_empty(0)

    def add(self, output: Tensor, token: Tensor) -> Tensor:
        """One output more; the token that stands for it too."""
        number, self.count = self.count, self.count + 1
        return _Add.apply(output, token, self, number)  # type: ignore[no-any-return,no-untyped-call]

    def read(self, weights: Tensor, token: Tensor) -> Tensor:
        """sum_k weights_k output_k over the last `len(weights)` outputs.

        Args:
            weights: `(outputs, width)`, or `(outputs, 1)` for a number each.
            token: of the last output.
        """
        with torch.autocast(self._values.device.type, enabled=False):
            return _Read.apply(weights, token, self)  # type: ignore[no-any-return,no-untyped-call]

    def write(self, number: int, output: Tensor) -> None:
        """Put an output in its place."""
        self._values[number].copy_(output.reshape(-1))

    def rows(self, first: int, last: int) -> Tensor:
        """Outputs `first` to `last`, `(outputs, numbers)`."""
        return self._values[first : last + 1]

    def note(self, last: int, weights: Tensor, gradient: Tensor) -> None:
        """Keep the gradient of a sum of outputs up to `last` for `gradient_of`."""
        if self._gradients is None:
            self._gradients = torch.empty_like(self._values)
        self._gradients[last].copy_(gradient.reshape(-1))
        self._weights[last] = (last + 1 - len(weights), weights)
        self._readers.append(last)

    def gradient_of(self, number: int) -> Tensor:
        """sum over readers l of weights_l,number gradient_l; each of them has been noted."""
        readers = [
            reader for reader in self._readers if self._weights[reader][0] <= number <= reader
        ]
        if number == 0:
            self._readers = []  # for another backward pass through the same graph
        if not readers or self._gradients is None:
            return self._values.new_zeros(self.shape)
        weights = torch.stack(
            [self._weights[reader][1][number - self._weights[reader][0]] for reader in readers]
        )
        low, high = readers[-1], readers[0]
        if readers == list(range(high, low - 1, -1)):
            return combine(weights.flip(0), self._gradients[low : high + 1], self.shape)
        return combine(weights, self._gradients[readers], self.shape)


def combine(weights: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """sum_k weights_k rows_k, of `shape` `(..., width)`.

    Args:
        weights: `(rows, width)`, or `(rows, 1)` for a number each.
        rows: `(rows, numbers)`.
    """
    if weights.shape[1] == 1:
        return torch.mv(rows.t(), weights[:, 0]).view(shape)
    total = rows[0].view(shape) * weights[0]
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        total.addcmul_(row.view(shape), weight)
    return total


class _Add(torch.autograd.Function):
    """Takes an output in; its gradient is asked for when all readers have theirs."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, token: Tensor, sums: Sums, number: int) -> Tensor:
        ctx.sums, ctx.number, ctx.dtype = sums, number, output.dtype
        sums.write(number, output)
        return torch.empty_like(token)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.sums.gradient_of(ctx.number).to(ctx.dtype), gradients[0], None, None


class _Read(torch.autograd.Function):
    """A sum of the outputs behind the token."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, token: Tensor, sums: Sums) -> Tensor:
        ctx.sums, ctx.last, ctx.dtype = sums, sums.count - 1, weights.dtype
        rows = sums.rows(sums.count - len(weights), ctx.last)
        weights = weights.to(rows.dtype)
        ctx.save_for_backward(weights, token)
        return combine(weights, rows, sums.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, token = ctx.saved_tensors
        gradient, for_weights = gradients[0], None
        if ctx.needs_input_grad[1]:
            ctx.sums.note(ctx.last, weights, gradient)
        if ctx.needs_input_grad[0]:
            rows = ctx.sums.rows(ctx.last + 1 - len(weights), ctx.last)
            if weights.shape[1] == 1:
                for_weights = torch.mv(rows, gradient.reshape(-1))[:, None]
            else:
                products = (row.view_as(gradient) * gradient for row in rows)
                for_weights = torch.stack([one.flatten(0, -2).sum(dim=0) for one in products])
            for_weights = for_weights.to(ctx.dtype)
        return for_weights, torch.empty_like(token), None
