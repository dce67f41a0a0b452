"""Absolute positions that are added to embeddings."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def sinusoids(start: int, length: int, width: int) -> Tensor:
    """Sinusoidal table `(length, width)`, float64, of positions start, start + 1, ...

    PE(p, i) = sin(p w_i) and PE(p, d/2 + i) = cos(p w_i) with w_i = 10000^(-i / (d/2 - 1)): the
    concatenated form of tensor2tensor, fairseq and the DLCL release; Vaswani et al. 2017
    (section 3.5) interleave the same waves.
    """
    half = width // 2
    rates = torch.exp(
        torch.arange(half, dtype=torch.float64) * (-math.log(10_000) / max(half - 1, 1))
    )
    angles = torch.arange(start, start + length, dtype=torch.float64)[:, None] * rates
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class Sinusoidal(nn.Module):
    """Adds sinusoids; positions count from 0. The table grows as needed and is not saved."""

    table: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("table", torch.empty(0, width), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """`x` `(sentences, positions, width)` plus the sinusoids of positions from `start`."""
        end = start + x.shape[1]
        if self.table.shape[0] < end or self.table.device != x.device:
            size = max(256, 2 ** math.ceil(math.log2(end)))
            self.table = sinusoids(0, size, self.width).to(x.device)
        return x + self.table[start:end].to(x.dtype)
