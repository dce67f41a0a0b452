"""Dropout with fast random bits on a CPU."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 2**16


def dropout(x: Tensor, probability: float, *, training: bool) -> Tensor:
    """x with each element zero with `probability`, the rest divided by 1 - `probability`.

    On a CPU torch draws one Mersenne number an element, several times the cost of everything around
    it; here a generator (SFC64), seeded from torch's own, draws 16 bits an element. The probability
    is rounded to 1/65536 and the scale belongs to the rounded one. Elsewhere torch's own is used.
    """
    if not training or probability == 0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, probability)
    return x * noise(x.shape, probability, x.dtype)


def noise(shape: torch.Size, probability: float, dtype: torch.dtype) -> Tensor:
    """Zeros and 1 / (1 - p), independent, on the CPU; torch's default generator decides which."""
    threshold = round(probability * LEVELS)
    seed = int(torch.randint(2**62, ()))
    count = shape.numel()
    # Four elements to a number; `random_raw` is many times faster than `Generator.bytes`.
    bits = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]
    keep = (bits >= threshold).view(np.int8)  # torch converts bytes much faster than booleans
    return torch.from_numpy(keep).view(shape).to(dtype).mul_(LEVELS / (LEVELS - threshold))


class Dropout(nn.Module):
    """`dropout` as a module, active in training mode only.

    Args:
        probability: of an element becoming zero.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        return dropout(x, self.probability, training=self.training)
