"""Merged attention: cross-attention and a form of self-attention in one sublayer."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from nmtdeep.model import kernels
from nmtdeep.model.layers.attention import CrossAttention
from nmtdeep.model.layers.average_attention import RunningSum, cumulative_mean
from nmtdeep.model.layers.cache import States
from nmtdeep.model.layers.initial_values import InitMatrix
from nmtdeep.model.layers.sublayer import Context, State, Sublayer


class MergedAttention(Sublayer):
    """(Attention(x W_q, m W_k, m W_v) + a) W_o, a_t = (1/t) sum_{j <= t} x_j W_v.

    Zhang et al. 2019, Eq. 16 and 17 (MAtt): the average over the target shares W_v and W_o, biases
    too, with cross-attention, as in the authors' release and as their parameter counts demand (the
    text names W_o alone). No gate, no dropout on the average.

    Args:
        cross: attention over the memory m, whose projections are shared.
    """

    def __init__(self, cross: CrossAttention) -> None:
        super().__init__()
        self.cross = cross
        self.value: nn.Module | None = None  # W_v alone, in a model packed for inference

    def value_map(self) -> tuple[Tensor, Tensor | None]:
        """W_v and its bias, where keys and values are projected by one matrix."""
        projection = self.cross.key_value
        width = projection.in_features
        bias = None if projection.bias is None else projection.bias[width:]
        return projection.rounded_weight()[width:], bias

    def _values(self, x: Tensor) -> Tensor:
        rounding = self.cross.key_value.rounding
        return kernels.linear(x if rounding is None else rounding.input(x), *self.value_map())

    def init_matrices(self) -> Iterator[InitMatrix]:
        return self.cross.init_matrices()

    def start(self, context: Context) -> States:
        return States([self.cross.start(context), RunningSum()])

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        memory, running = state.parts if isinstance(state, States) else (None, None)
        values = self._values(x) if self.value is None else self.value(x)
        sums = running if isinstance(running, RunningSum) else None
        average = cumulative_mean(values, sums, context.packing)
        merged = self.cross.attended(x, context, memory) + average
        return self.cross.output(merged.to(x.dtype))


class Both(Sublayer):
    """first(x) + second(x): MAtt with self-attention, or with the original AAN (Table 3, 6, 7)."""

    def __init__(self, first: Sublayer, second: Sublayer) -> None:
        super().__init__()
        self.first = first
        self.second = second

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield from self.first.init_matrices()
        yield from self.second.init_matrices()

    def start(self, context: Context) -> States:
        return States([self.first.start(context), self.second.start(context)])

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        first, second = state.parts if isinstance(state, States) else (None, None)
        return self.first(x, context, first) + self.second(x, context, second)
