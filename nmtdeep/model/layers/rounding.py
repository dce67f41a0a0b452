"""8-bit integers in a model: what rounding its weights and activations does to it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Integers from -127 to 127; -128 is not used, so that both signs have the same range.
LARGEST = 127


def factor(x: Tensor) -> Tensor:
    """q = 127 / max |x|, by which numbers become integers; of zeros 127."""
    largest = x.detach().abs().amax()
    return LARGEST / torch.where(largest > 0, largest, 1.0)


def rounded(x: Tensor, q: Tensor | float) -> Tensor:
    """clip(round(q x), -127, 127) / q, halves to even.

    Its gradient is that of the clipping: straight through the rounding (Bengio et al. 2013).
    """
    inside = (x * q).clamp(-LARGEST, LARGEST) / q
    return inside + ((inside * q).round() / q - inside).detach()


@dataclass
class Rounding:
    """How a linear map or a table of embeddings is rounded.

    Attributes:
        blocks: rows of the weight in so many parts, with a factor each: query, key and value.
        activation: factor of the input, for a product of integers; None: of each input its own.
    """

    blocks: int = 1
    activation: float | None = None

    def weight(self, weight: Tensor) -> Tensor:
        """`(outputs, inputs)`, rounded."""
        parts = weight.chunk(self.blocks)
        return torch.cat([rounded(part, factor(part)) for part in parts])

    def input(self, x: Tensor) -> Tensor:
        """Any shape, rounded."""
        return rounded(x, factor(x) if self.activation is None else self.activation)
