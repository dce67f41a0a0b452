"""Positions: sinusoids added to embeddings; relative and rotary positions in self-attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmtdeep.model.kernels.plain_attention import RelativeVectors
from nmtdeep.model.layers.initial_values import InitMatrix
from nmtdeep.packing import Packing

Rates = Literal["tensor2tensor", "paper"]


def sinusoids(start: int, length: int, width: int, rates: Rates = "tensor2tensor") -> Tensor:
    """Sinusoidal table `(length, width)`, float64, of positions start, start + 1, ...

    PE(p, i) = sin(p w_i) and PE(p, d/2 + i) = cos(p w_i) with w_i = 10000^(-i / (d/2 - 1)): the
    concatenated form of tensor2tensor, fairseq and the DLCL release; Vaswani et al. 2017
    (section 3.5) interleave the waves. Their w_i, `rates="paper"`, are 10000^(-2i / d).
    """
    half = width // 2
    last = max(half - 1, 1) if rates == "tensor2tensor" else half
    waves = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10_000) / last))
    angles = torch.arange(start, start + length, dtype=torch.float64)[:, None] * waves
    return torch.cat((angles.sin(), angles.cos()), dim=1)


class Sinusoidal(nn.Module):
    """Adds sinusoids. The table grows as needed and is not saved.

    Args:
        width: model width d.
        first: position of a sentence's first token.
        rates: of the waves; see `sinusoids`.
    """

    table: Tensor

    def __init__(self, width: int, *, first: int = 0, rates: Rates = "tensor2tensor") -> None:
        super().__init__()
        self.width = width
        self.first = first
        self.rates: Rates = rates
        self.register_buffer("table", torch.empty(0, width, device="cpu"), persistent=False)
        self._before: list[Tensor] = []  # recorded CUDA graphs go on reading these

    def forward(self, x: Tensor, start: int = 0, packing: Packing | None = None) -> Tensor:
        """`x` plus sinusoids.

        Args:
            x: `(sentences, positions, width)`, or `(1, tokens, width)` with a packing.
            start: number of tokens that precede it.
            packing: the sentences, if they are packed.
        """
        length = packing.longest if packing else x.shape[1]
        self.reserve(start + length, x.device)
        first = start + self.first
        table = self.table[first : first + length].to(x.dtype)
        return x + (F.embedding(packing.positions, table) if packing else table)

    def reserve(self, length: int, device: torch.device) -> None:
        """Make the table for sentences of so many tokens."""
        end = length + self.first
        if end <= len(self.table) and self.table.device == device:
            return
        size = max(256, 2 ** math.ceil(math.log2(end)))
        self._before.append(self.table)
        self.table = sinusoids(0, size, self.width, self.rates).to(device)


class NoPositions(nn.Module):
    """Adds nothing, for models whose positions are in attention only."""

    def forward(self, x: Tensor, start: int = 0, packing: Packing | None = None) -> Tensor:
        return x


class RelativePositions(nn.Module):
    """Vectors a_ij = R[clip(j - i, -k, k) + k] of query i and key j (Shaw et al. 2018, Eq. 3 to 5).

    One table for keys, and one for values if these have positions; all heads share it.

    Args:
        head_width: d_h.
        clip: k.
        values: whether values have positions too.
    """

    def __init__(self, head_width: int, clip: int, *, values: bool = False) -> None:
        super().__init__()
        self.clip = clip
        self.keys = nn.Parameter(torch.empty(2 * clip + 1, head_width))
        self.values = nn.Parameter(torch.empty(2 * clip + 1, head_width)) if values else None

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield InitMatrix(self.keys, "key", self.keys.shape[1], self.keys.shape[0])
        if self.values is not None:
            yield InitMatrix(self.values, "value", self.values.shape[1], self.values.shape[0])

    def at(self, offsets: Tensor) -> RelativeVectors:
        """`(..., d_h)` of keys, and of values, at `offsets` `(...)` from the query."""
        rows = offsets.clamp(-self.clip, self.clip) + self.clip
        values = None if self.values is None else F.embedding(rows, self.values)
        return F.embedding(rows, self.keys), values


class Rotary(nn.Module):
    """R_m x for a query or key x of a head at position m (Su et al. 2021).

    R_m rotates the pair i of d_h features by m theta_i with theta_i = base^(-2(i-1)/d_h), so that
    (R_m q)^T R_n k depends on n - m only. A pair is the features i and i + d_h/2; the paper's are
    neighbors, which is another order of the rows of W_q and W_k.
    """

    def __init__(self, head_width: int, *, base: float) -> None:
        super().__init__()
        self.head_width = head_width
        self.base = base

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """`(sentences, positions, width)` to the same, at `(positions,)` or all at `(1,)`."""
        half = self.head_width // 2
        dtype = torch.promote_types(x.dtype, torch.float32)
        rates = self.base ** (torch.arange(half, dtype=dtype, device=x.device) / -half)
        angles = positions[:, None, None] * rates
        cos, sin = angles.cos(), angles.sin()
        first, second = x.view(*x.shape[:2], -1, self.head_width).chunk(2, dim=3)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=3)
        return turned.flatten(2).to(x.dtype)
