"""Weighted sums of all outputs so far, each output read once for a sum and once for each gradient.

A layer that reads all layers below it reads much memory: at 48 layers 1,176 outputs, and as many
again for the gradients of weights and outputs. So the outputs are the rows of one buffer, a matrix
whose product with the weights is the sum. Their gradients are sums over a buffer of the readers'
gradients, taken when the last reader has its own: autograd would read and write them once for each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Sums:
    """The outputs of one forward pass, their sums, and the gradients of the sums.

    Args:
        entries: the largest number of outputs.
        like: `(..., width)` tensor of an output's shape, dtype and device.
        dtype: that outputs and gradients are kept and multiplied in; None: that of `like`.
    """

    def __init__(self, entries: int, like: Tensor, dtype: torch.dtype | None = None) -> None:
        self.shape = like.shape
        self.dtype = like.dtype
        self.count = 0
        self.values = like.new_empty(entries, like.numel(), dtype=dtype)
        self.gradients: Tensor | None = None  # rows: sums, by the last output that each read
        self.readers: dict[int, tuple[int, Tensor]] = {}  # the same: first output read, weights

    def add(self, output: Tensor, token: Tensor | None = None) -> Tensor:
        """Append an output; a token that represents all outputs so far in autograd's graph.

        The token is not kept here, or graph and buffers would hold each other in memory.

        Args:
            token: of the output before; None: this is the first.
        """
        before = self.values.new_empty(0) if token is None else token
        return _Add.apply(output, before, self)  # type: ignore[no-untyped-call]

    def read(self, weights: Tensor, token: Tensor) -> Tensor:
        """sum_k weights_k output_k over the last `len(weights)` outputs.

        Args:
            weights: `(outputs, width)`, or `(outputs, 1)` for one number per output.
            token: of the last output.
        """
        with torch.autocast(self.values.device.type, enabled=False):
            return _Read.apply(weights, token, self)  # type: ignore[no-untyped-call]

    def gradient_of(self, number: int) -> Tensor:
        """sum over readers l of weights_l,number gradient_l, when all of them have a gradient."""
        readers = [last for last, (first, _) in self.readers.items() if first <= number <= last]
        chosen = [self.readers[last] for last in readers]
        if number == 0:
            self.readers = {}  # for another backward pass through the same graph
        if self.gradients is None or not readers:
            return self.values.new_zeros(self.shape)
        weights = torch.stack([weights[number - first] for first, weights in chosen])
        low, high = readers[-1], readers[0]
        if readers == list(range(high, low - 1, -1)):
            return combine(weights.flip(0), self.gradients[low : high + 1], self.shape)
        return combine(weights, self.gradients[readers], self.shape)


def combine(weights: Tensor, rows: Tensor, shape: torch.Size) -> Tensor:
    """sum_k weights_k rows_k, of `shape` `(..., width)`.

    Args:
        weights: `(rows, width)`, or `(rows, 1)` for one number per row.
        rows: `(rows, numbers)`.
    """
    if weights.shape[1] == 1:
        return torch.mv(rows.t(), weights[:, 0]).view(shape)
    total = rows[0].view(shape) * weights[0]
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        total.addcmul_(row.view(shape), weight)
    return total


class _Add(torch.autograd.Function):
    """Stores an output; autograd takes its gradient after those of all readers."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, token: Tensor, sums: Sums) -> Tensor:
        ctx.sums, ctx.number, ctx.dtype = sums, sums.count, output.dtype
        sums.values[sums.count].copy_(output.reshape(-1))
        sums.count += 1
        return torch.empty_like(token)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.sums.gradient_of(ctx.number).to(ctx.dtype), gradients[0], None


class _Read(torch.autograd.Function):
    """A sum of outputs up to the token."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, token: Tensor, sums: Sums) -> Tensor:
        ctx.sums, ctx.count, ctx.dtype = sums, sums.count, weights.dtype
        rows = sums.values[sums.count - len(weights) : sums.count]
        weights = weights.to(rows.dtype)
        ctx.save_for_backward(weights, token)
        return combine(weights, rows, sums.shape).to(sums.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, token = ctx.saved_tensors
        sums, gradient, for_weights = ctx.sums, gradients[0], None
        first = ctx.count - len(weights)
        if ctx.needs_input_grad[1]:
            if sums.gradients is None:
                sums.gradients = torch.empty_like(sums.values)
            sums.gradients[ctx.count - 1].copy_(gradient.reshape(-1))
            sums.readers[ctx.count - 1] = first, weights
        if ctx.needs_input_grad[0]:
            rows = sums.values[first : ctx.count]
            if weights.shape[1] == 1:
                for_weights = torch.mv(rows, gradient.reshape(-1).to(rows.dtype))[:, None]
            else:
                products = (row.view_as(gradient) * gradient for row in rows)
                sums_of_features = [product.flatten(0, -2).sum(dim=0) for product in products]
                for_weights = torch.stack(sums_of_features)
            for_weights = for_weights.to(ctx.dtype)
        return for_weights, torch.empty_like(token), None
