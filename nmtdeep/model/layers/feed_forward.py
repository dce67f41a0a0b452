"""Position-wise feed-forward sublayer (Vaswani et al. 2017, Eq. 2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.dropout import Dropout


class FeedForward(Sublayer):
    """W_2 dropout(max(0, W_1 x + b_1)) + b_2, shapes kept.

    Args:
        width: model width d.
        inner: width f between the two maps.
        dropout: probability after the ReLU.
    """

    def __init__(self, width: int, inner: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner)
        self.outer = nn.Linear(inner, width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Apply both maps at each position."""
        return self.outer(self.dropout(torch.relu(self.inner(x))))  # type: ignore[no-any-return]
