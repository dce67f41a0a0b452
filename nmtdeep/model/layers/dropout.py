"""Dropout as a module."""

from __future__ import annotations

from torch import Tensor, nn

from nmtdeep.model import kernels


class Dropout(nn.Module):
    """`kernels.dropout`, active in training mode only.

    Args:
        probability: of an element becoming zero.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return kernels.dropout(x, self.probability, training=self.training)
