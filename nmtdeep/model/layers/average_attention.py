"""Average attention: a position reads the mean of all positions up to it (Zhang et al. 2018)."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nmtdeep.model.layers.cache import RowState
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.initial_values import InitMatrix, matrix
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.sublayer import Context, State, Sublayer
from nmtdeep.packing import Packing


class RunningSum(RowState):
    """The sum of the positions so far: all the next mean needs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def mean(self, x: Tensor) -> Tensor:
        """Add the newest position `x` `(sentences, hypotheses, width)`; mean of all."""
        self.value = x if self.value is None else self.value + x
        self.count += 1
        return self.value / self.count


def cumulative_mean(x: Tensor, state: RunningSum | None, packing: Packing | None = None) -> Tensor:
    """(1/t) sum_{j <= t} x_j at each position t of `(sentences, positions, width)`.

    In fp32 or better. With a state, `x` is the newest position only; with a packing, it is
    `(1, tokens, width)`.
    """
    if packing is not None:
        return packing.pack(cumulative_mean(packing.pad(x), None))
    x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    if state is not None:
        return state.mean(x)
    counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    return x.cumsum(dim=1) / counts[:, None]


class AverageAttention(Sublayer):
    """i x + f g with g_t = FFN((1/t) sum_{j <= t} x_j), [i; f] = sigmoid(W [x; g] + b).

    Eq. 1 to 3 of Zhang et al. 2018 (AAN). Without gate the result is g; without feed-forward map g
    is the mean itself.

    Args:
        gate: the 2d x 2d map W behind sigmoids, or not.
        feed_forward: map of the mean, or None.
    """

    def __init__(self, width: int, *, gate: bool, feed_forward: FeedForward | None = None) -> None:
        super().__init__()
        self.gate = Linear(2 * width, 2 * width) if gate else None
        self.feed_forward = feed_forward

    def init_matrices(self) -> Iterator[InitMatrix]:
        if self.feed_forward is not None:
            yield from self.feed_forward.init_matrices()
        if self.gate is not None:
            yield matrix(self.gate, "gate")

    def start(self, context: Context) -> RunningSum:
        return RunningSum()

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Average, map and gate at every position of `x`; with a state, at the newest."""
        running = state if isinstance(state, RunningSum) else None
        average = cumulative_mean(x, running, context.packing).to(x.dtype)
        if self.feed_forward is not None:
            average = self.feed_forward(average, context)
        if self.gate is None:
            return average
        keep, take = self.gate(torch.cat((x, average), dim=2)).sigmoid().chunk(2, dim=2)
        return keep * x + take * average
