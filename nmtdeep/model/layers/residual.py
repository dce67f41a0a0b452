"""Residual wrappers: each owns a sublayer and decides where the norm stands."""

from __future__ import annotations

from torch import Tensor, nn

from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.dropout import Dropout


class Residual(nn.Module):
    """Base of the wrappers.

    Args:
        sublayer: what is wrapped.
        norm: a layer norm of the model's width.
        dropout: probability on the sublayer's output.
    """

    def __init__(self, sublayer: Sublayer, norm: nn.LayerNorm, *, dropout: float) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Apply the wrapped sublayer, `(sentences, positions, width)` to the same."""
        raise NotImplementedError


class PreNorm(Residual):
    """x + dropout(sublayer(norm(x))); the identity path is never normalised."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Norm, sublayer, add."""
        return x + self.dropout(self.sublayer(self.norm(x), context, state))  # type: ignore[no-any-return]


class PostNorm(Residual):
    """norm(x + dropout(sublayer(x))), the order of Vaswani et al. 2017."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Sublayer, add, norm."""
        return self.norm(x + self.dropout(self.sublayer(x, context, state)))  # type: ignore[no-any-return]
