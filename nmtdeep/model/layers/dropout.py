"""Dropout as a module."""

from __future__ import annotations

from torch import Tensor, nn

from nmtdeep.model import kernels


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` that computes with `kernels.dropout`."""

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same; in evaluation mode `x` itself."""
        return kernels.dropout(x, self.p, training=self.training)
