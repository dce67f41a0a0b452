"""Weighted sums of all outputs so far, computed by products with blocks of outputs.

A layer that reads all layers below it reads much memory: at 48 layers 1,176 outputs, and as many
again for the gradients of outputs and of weights. So the outputs are the rows of one buffer. When a
block of them is complete, one product computes its share in all sums of the next block, and a sum
then reads the outputs of its own block only. The gradients of outputs are sums over a buffer of the
sums' gradients, from the top down in the same blocks; those of all weights are one product.

Training on a GPU takes the kernel of `triton_sums` for products with the outputs, if it can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtdeep.devices import has_triton

# Outputs of a block: a sum reads half of them, and the sums of a block together all before it.
BLOCK = 6
# Numbers of a part of a product over whole outputs; a GPU computes the parts side by side.
PART = 1 << 14


class Sums:
    """The outputs of one forward pass, their sums, and the gradients of the sums.

    Sum l is sum_k weights_lk output_k over k <= l within the window.

    Args:
        weights: `(outputs, outputs, features)`; features is the width, or 1 for one number per
            output.
        like: `(..., width)` tensor of an output's shape, dtype and device.
        window: number of the newest outputs that a sum reads; None: all.
        dtype: that outputs and gradients are kept and multiplied in; None: that of `like`.
    """

    def __init__(
        self,
        weights: Tensor,
        like: Tensor,
        *,
        window: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.shape = like.shape
        self.dtype = like.dtype
        self.count = 0
        self.values = like.new_empty(len(weights), like.numel(), dtype=dtype)
        self.window = window or len(weights)
        self.given = weights
        self.product: Callable[..., Tensor] = product
        if is_fused(weights, self.values):
            from nmtdeep.model.kernels.triton_sums import weighted_sums

            self.product = weighted_sums
        self.weights = weights.detach()
        if self.window < len(weights):
            seen = visible(len(weights), window, like.device)
            self.weights = self.weights.masked_fill(~seen[:, :, None], 0.0)
        self.below: Tensor | None = None  # share of the blocks before in each sum of this block
        self.gradients: Tensor | None = None  # of the sums
        self.known = 0  # the lowest sum whose gradient is there
        self.above: tuple[int, Tensor] | None = None  # a block, and the share of the sums above it

    def add(self, output: Tensor, token: Tensor | None = None) -> Tensor:
        """Append an output; a token that represents all outputs so far in autograd's graph.

        The token is not kept here, or graph and buffers would hold each other in memory.

        Args:
            token: of the output before; None: this is the first.
        """
        before = self.values.new_empty(0) if token is None else token
        weights = self.given if token is None else None
        with torch.autocast(self.values.device.type, enabled=False):
            return _Add.apply(output, before, weights, self)  # type: ignore[no-untyped-call]

    def read(self, token: Tensor) -> Tensor:
        """The sum of the newest output and those before.

        Args:
            token: of the newest output.
        """
        with torch.autocast(self.values.device.type, enabled=False):
            return _Read.apply(token, self)  # type: ignore[no-untyped-call]

    def append(self, output: Tensor) -> None:
        """Store an output."""
        end = self.count
        self.values[end].copy_(output.reshape(-1))
        self.count += 1
        if end % BLOCK == 0:
            first = max(0, end + 1 - self.window)
            weights = self.weights[end : end + BLOCK, first:end]
            rows = self.values[first:end]
            self.below = self.product(weights, rows, None, rows.dtype) if first < end else None

    def newest(self) -> Tensor:
        """The sum of the newest output and those before, in the shape and dtype of `like`."""
        row = self.count - 1
        start = row - row % BLOCK
        first = max(start, self.count - self.window)
        weights = self.weights[row : row + 1, first : row + 1]
        below = None if self.below is None else self.below[row - start : row - start + 1]
        total = self.product(weights, self.values[first : row + 1], below, self.dtype)
        return total.view(self.shape)

    def receive(self, gradient: Tensor, row: int) -> None:
        """Store the gradient of a sum."""
        if self.gradients is None:
            self.gradients, self.known = torch.empty_like(self.values), self.count
        self._known(row + 1)[row].copy_(gradient.reshape(-1))
        self.known = row

    def _known(self, first: int) -> Tensor:
        """The gradients, which are zero for sums from `first` on that nothing read."""
        assert self.gradients is not None
        if first < self.known:
            self.gradients[first : self.known].zero_()
            self.known = first
        return self.gradients

    def gradient_of(self, number: int, dtype: torch.dtype) -> Tensor:
        """sum_l weights_l,number gradient_l, when all these sums have their gradient."""
        known = self._known(number)
        start = number - number % BLOCK
        end = min(start + BLOCK, self.count)
        if self.above is None or self.above[0] != start:
            last = min(end - 1 + self.window, self.count)
            weights = self.weights[end:last, start:end].transpose(0, 1)
            rows = known[end:last]
            self.above = start, self.product(weights, rows, None, rows.dtype)
        place, last = number - start, min(end, number + self.window)
        weights = self.weights[number:last, number : number + 1].transpose(0, 1)
        above = self.above[1][place : place + 1]
        total = self.product(weights, known[number:last], above, dtype)
        return total.view(self.shape)

    def gradient_of_weights(self) -> Tensor:
        """<gradient_l, output_k> for all l and k that a sum reads; by feature if weights are."""
        features, result = self.weights.shape[2], torch.zeros_like(self.given)
        gradients, values = self._known(0)[: self.count], self.values[: self.count]
        if features == 1:
            products = dot_products(gradients, values).tril().triu(1 - self.window)
            result[: self.count, : self.count, 0] = products
            return result
        for row, gradient in enumerate(gradients):
            first = max(0, row + 1 - self.window)
            for column, value in enumerate(values[first : row + 1], start=first):
                result[row, column] = (value * gradient).view(-1, features).sum(dim=0)
        return result


def is_fused(weights: Tensor, rows: Tensor) -> bool:
    """Whether to take the kernel of `triton_sums`, which has a weight for each row."""
    return torch.is_grad_enabled() and weights.shape[2] == 1 and takes_triton(rows)


def takes_triton(rows: Tensor) -> bool:
    """Whether to take a kernel of Triton, which computes in fp32."""
    return rows.is_cuda and rows.dtype != torch.float64 and has_triton()


def product(weights: Tensor, rows: Tensor, start: Tensor | None, dtype: torch.dtype) -> Tensor:
    """start_r + sum_k weights_rk rows_k, of shape `(results, numbers)`.

    Args:
        weights: `(results, rows, features)`; each number of a row has the weight of its feature.
        rows: `(rows, numbers)`.
        start: `(results, numbers)`; None: zero.
        dtype: of the result.
    """
    weights, features = weights.to(rows.dtype), weights.shape[2]
    if features == 1:
        square = weights[:, :, 0]
        total = square @ rows if start is None else torch.addmm(start, square, rows)
        return total.to(dtype)
    totals = rows.new_zeros(len(weights), rows.shape[1]) if start is None else start.clone()
    for total, each in zip(totals, weights, strict=True):
        for row, weight in zip(rows, each, strict=True):
            total.view(-1, features).addcmul_(row.view(-1, features), weight)
    return totals.to(dtype)


def dot_products(one: Tensor, other: Tensor) -> Tensor:
    """<one_i, other_j> of rows `(rows, numbers)`; sums of parts are in fp32 or better."""
    numbers = one.shape[1]
    split = numbers - numbers % PART
    total = (one[:, split:] @ other[:, split:].T).to(torch.promote_types(one.dtype, torch.float32))
    first = one[:, :split].view(len(one), -1, PART).transpose(0, 1)
    second = other[:, :split].view(len(other), -1, PART).permute(1, 2, 0)
    return total + torch.bmm(first, second).sum(dim=0, dtype=total.dtype)


def visible(
    entries: int, window: int | None, device: torch.device | None = None, dilation: int = 1
) -> Tensor:
    """Whether row l reads column k, `(rows, columns)`: l - k is 0 or more, below the window.

    And it is a multiple of the dilation.
    """
    numbers = torch.arange(entries, device=device)
    age = numbers[:, None] - numbers
    return (age >= 0) & (age < (window or entries)) & (age % dilation == 0)


class _Add(torch.autograd.Function):
    """Stores an output; autograd takes its gradient after those of all sums that read it.

    The first one takes the gradient of the weights, after those of all sums.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, token: Tensor, weights: Tensor | None, sums: Sums
    ) -> Tensor:
        ctx.sums, ctx.number, ctx.dtype = sums, sums.count, output.dtype
        sums.append(output)
        return torch.empty_like(token)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        sums, for_output, for_weights = ctx.sums, None, None
        if ctx.needs_input_grad[0]:
            for_output = sums.gradient_of(ctx.number, ctx.dtype)
        if ctx.needs_input_grad[2]:
            for_weights = sums.gradient_of_weights()
        if ctx.number == 0:
            sums.gradients = sums.above = None  # for another backward pass through the same graph
        return for_output, gradients[0], for_weights, None


class _Read(torch.autograd.Function):
    """The sum up to the token."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, sums: Sums) -> Tensor:
        ctx.save_for_backward(token)
        ctx.sums, ctx.row = sums, sums.count - 1
        return sums.newest()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.sums.receive(gradients[0], ctx.row)
        return torch.empty_like(ctx.saved_tensors[0]), None
