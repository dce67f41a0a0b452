"""Dropout as a module."""

from __future__ import annotations

from torch import Tensor, nn

from nmtdeep.model import kernels


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` that computes with `kernels.dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape; returns `x` itself in evaluation mode."""
        return kernels.dropout(x, self.p, training=self.training)
