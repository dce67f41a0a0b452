"""Position-wise feed-forward sublayer (Vaswani et al. 2017, Eq. 2), plain or gated."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.initial_values import InitMatrix, matrix
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.sublayer import Context, State, Sublayer


class Gated(nn.Module):
    """f(a) * b of the halves a and b of the features: f = swish in SwiGLU, f = GELU in GEGLU.

    With a = W x and b = V x (Shazeer 2020, Eq. 6). A gated map has three matrices instead of two,
    so that two thirds of the inner width keep the number of parameters.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """`(..., 2 f)` to `(..., f)`."""
        gate, value = x.chunk(2, dim=-1)
        return self.activation(gate) * value


class FeedForward(Sublayer):
    """W_2 dropout(f(W_1 x + b_1)) + b_2, shapes kept.

    Args:
        width: model width d.
        inner: width f between the two maps.
        activation: f; None: max(0, .), which is computed with the first map. Before a `Gated` one
            W_1 has twice as many rows: those of W, then those of V.
        dropout: probability after f.
        bias: whether there is b_2.
    """

    def __init__(
        self,
        width: int,
        inner: int,
        *,
        activation: nn.Module | None = None,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.maps = 2 if isinstance(activation, Gated) else 1
        self.inner = Linear(width, self.maps * inner, relu=activation is None)
        self.activation = activation or nn.Identity()
        self.outer = Linear(inner, width, bias=bias)
        self.dropout = Dropout(dropout)

    def init_matrices(self) -> Iterator[InitMatrix]:
        for rows in self.inner.weight.chunk(self.maps):
            yield InitMatrix(rows, "inner", rows.shape[1], len(rows))
        yield matrix(self.outer, "outer")

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))
