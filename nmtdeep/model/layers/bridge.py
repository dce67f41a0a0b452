"""Bridge: from the encoder's outputs to one memory per decoder layer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class Bridge(nn.Module):
    """Base: `forward(top, layers, depth) -> memories`."""

    def forward(self, top: Tensor, layers: Sequence[Tensor], depth: int) -> list[Tensor]:
        """One `(sentences, source, width)` memory for each of `depth` decoder layers."""
        raise NotImplementedError


class TopLayer(Bridge):
    """Every decoder layer attends to the encoder's top output."""

    def forward(self, top: Tensor, layers: Sequence[Tensor], depth: int) -> list[Tensor]:
        """The same memory for all."""
        return [top] * depth
