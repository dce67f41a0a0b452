"""Layer combination: what does layer l+1 read of the outputs y_0 ... y_l below it?

The history is an argument and a return value; nothing is kept on the module, so a forward pass that
raises cannot poison the next. Every combination is position-wise: decoding step by step needs no
cache for it.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn


class Combination(nn.Module):
    """Base: `start` with the embedding, `add` each layer's output, `read` the next input."""

    def start(self, x: Tensor) -> Any:
        """History that holds the embedding output y_0 only."""
        raise NotImplementedError

    def add(self, history: Any, output: Tensor) -> Any:
        """History with one more layer output."""
        raise NotImplementedError

    def read(self, history: Any) -> Tensor:
        """Input of the next layer, or after the last layer the top of the stack."""
        raise NotImplementedError


class PlainStack(Combination):
    """Layer l+1 reads y_l: the ordinary residual stack."""

    def start(self, x: Tensor) -> Tensor:
        """Remember the newest output only."""
        return x

    def add(self, history: Tensor, output: Tensor) -> Tensor:
        """Forget what was below."""
        return output

    def read(self, history: Tensor) -> Tensor:
        """The newest output."""
        return history
