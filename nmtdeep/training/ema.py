"""The exponential moving average of a model's weights over its updates."""

from __future__ import annotations

import torch
from torch import Tensor

from nmtdeep import checkpoint
from nmtdeep.model.transformer import Transformer


class MovingAverage:
    """v <- d v + (1 - d) w after update t, with d = min(decay, (1 + t) / (10 + t)).

    The rule of TensorFlow's `ExponentialMovingAverage` with `num_updates`: a small d at the start
    soon forgets the first weights.

    Args:
        model: with the weights w, which are the first v.
        decay: largest d.

    Attributes:
        weights: v by name.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.decay = decay
        self._current = checkpoint.weights(model)
        self.weights: dict[str, Tensor] = {}
        self.restart()

    def restart(self) -> None:
        """Begin with the weights that the model has now."""
        self.weights = {name: weight.clone() for name, weight in self._current.items()}

    def add(self, update: int) -> None:
        """Include the weights after this `update`."""
        decay = min(self.decay, (1 + update) / (10 + update))
        weights, current = list(self.weights.values()), list(self._current.values())
        torch._foreach_lerp_(weights, current, 1 - decay)
