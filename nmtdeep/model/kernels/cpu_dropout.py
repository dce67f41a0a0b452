"""Dropout noise with fast random bits on a CPU.

torch draws one Mersenne number per element, which costs several times everything around it; here a
generator (SFC64), seeded from torch's own, draws 16 bits per element.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

LEVELS = 2**16


def noise(shape: torch.Size, probability: float, dtype: torch.dtype) -> Tensor:
    """Zeros and 1 / (1 - p), independent; torch's default generator decides which.

    The probability is rounded to 1/65536, and the scale belongs to the rounded one.
    """
    threshold = round(probability * LEVELS)
    seed = int(torch.randint(2**62, ()))
    count = shape.numel()
    # Four elements to a number; `random_raw` is many times faster than `Generator.bytes`.
    bits = np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]
    keep = (bits >= threshold).view(np.int8)  # torch converts bytes much faster than booleans
    return torch.from_numpy(keep).view(shape).to(dtype).mul_(LEVELS / (LEVELS - threshold))
