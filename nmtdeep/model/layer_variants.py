"""Layers that are more than sublayers in their residual wrappers, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.cache import States
from nmtdeep.model.layers.initial_values import InitMatrix, matrix
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.residual import Residual
from nmtdeep.model.layers.sublayer import Context
from nmtdeep.model.transformer import Layer

# By order: the steps to where F_2, F_3, ... are evaluated, and the weights gamma of all F.
STEPS = {2: (1.0,), 4: (0.5, 0.5, 1.0)}
WEIGHTS = {2: (1 / 2, 1 / 2), 4: (1 / 6, 1 / 3, 1 / 3, 1 / 6)}


class BottomToTop(Layer):
    """A post-norm layer whose last norm also reads the layer's input x_inp.

    The last wrapper is norm(x_inp + x + dropout(sublayer(x))) (Takase et al. 2022): the
    gradient passes the layer's other norms by.
    """

    def _through(
        self, x: Tensor, context: Context, states: States | None, branch: int | None
    ) -> Tensor:
        *below, last = self
        *parts, top = [None] * len(self.sublayers) if states is None else states.parts
        y = x
        for wrapper, state in zip(below, parts, strict=True):
            y = wrapper(y, context, state)
        return last(y, context, top, x)


class RungeKutta(Layer):
    """y + sum_i gamma_i F_i, F_1 = F(y), F_i = F(y + a_i F_{i-1}): ODE Transformer (Li 2022).

    Order 2: a = (1), gamma = (1/2, 1/2); order 4: a = (1/2, 1/2, 1), gamma = (1/6, 1/3, 1/3, 1/6).
    All evaluations of F share the layer's parameters; in a decoder each has a state of its own.

    Args:
        total: of the F_i.
        function: F; change: the layer's output minus its input, so that order 1 would be the plain
            layer; output: the output, as in the authors' release.
    """

    def __init__(
        self,
        sublayers: Sequence[Residual],
        *,
        order: Literal[2, 4],
        total: GatedSum | WeightedSum,
        function: Literal["change", "output"],
        drop: float = 0.0,
    ) -> None:
        super().__init__(sublayers, drop=drop)
        self.order = order
        self.total = total
        self.function = function

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield from super().init_matrices()
        if isinstance(self.total, GatedSum):
            yield matrix(self.total.gate, "gate")

    def start(self, context: Context) -> States:
        start = super().start
        return States([start(context) for _ in range(self.order)])

    def _through(
        self, x: Tensor, context: Context, states: States | None, branch: int | None
    ) -> Tensor:
        own: Sequence[Any] = [None] * self.order if states is None else states.parts
        y = x
        values: list[Tensor] = []
        for step, state in zip((0.0, *STEPS[self.order]), own, strict=True):
            if values:
                y = x + step * values[-1]
            output = super()._through(y, context, state, None)
            values.append(output - y if self.function == "change" else output)
        return x + self.total(values)


class WeightedSum(nn.Module):
    """sum_i gamma_i F_i.

    Args:
        learned: whether gamma is learned, from `weights`.
    """

    def __init__(self, weights: Sequence[float], *, learned: bool) -> None:
        super().__init__()
        self.start = tuple(weights)
        self.weight = nn.Parameter(torch.empty(len(weights))) if learned else None

    def init_constants(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        if self.weight is not None:
            yield self.weight, torch.tensor(self.start)

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        """`(sentences, positions, width)` each, to the same."""
        weights = self.start if self.weight is None else self.weight
        parts = [gamma * value for gamma, value in zip(weights, values, strict=True)]
        return torch.stack(parts).sum(dim=0)


class GatedSum(nn.Module):
    """g F_1 + (1 - g) F_2, g = sigmoid(w^T [F_1; F_2] + b), a number for each position.

    The release has one w for all layers; here each layer has its own.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = Linear(2 * width, 1)

    def forward(self, values: Sequence[Tensor]) -> Tensor:
        first, second = values
        gate = self.gate(torch.cat((first, second), dim=2)).sigmoid()
        return second + gate * (first - second)
