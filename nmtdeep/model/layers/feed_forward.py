"""Position-wise feed-forward sublayer (Vaswani et al. 2017, Eq. 2)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.parameters import Matrix, matrix


class FeedForward(Sublayer):
    """W_2 dropout(f(W_1 x + b_1)) + b_2, shapes kept.

    Args:
        width: model width d.
        inner: width f between the two maps.
        activation: f; None: max(0, .), which is computed with the first map.
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
        self.inner = Linear(width, inner, relu=activation is None)
        self.activation = activation or nn.Identity()
        self.outer = Linear(inner, width, bias=bias)
        self.dropout = Dropout(dropout)

    def matrices(self) -> Iterator[Matrix]:
        """W_1 and W_2."""
        yield matrix(self.inner, "inner")
        yield matrix(self.outer, "outer")

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Apply both maps at each position."""
        return self.outer(self.dropout(self.activation(self.inner(x))))
