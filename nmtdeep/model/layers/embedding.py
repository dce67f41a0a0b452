"""Token embeddings."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.model.layers.rounding import Rounding
from nmtdeep.packing import Packing


class TokenEmbedding(nn.Module):
    """dropout(positions(scale E[ids] + b)), `(sentences, positions)` ids to `(..., width)`.

    Args:
        weight: `(types, width)` table E, possibly shared with the other side or the output.
        positions: module that adds positions, called as `positions(x, start)`, or with a packing as
            `positions(x, start, packing)`.
        bias: `(width,)` vector b added to every embedding (Zhang et al. 2019's release), or None.
        dropout: probability on the sum.
        scale: factor of each embedding; None: sqrt(d).
        alias: (a, b): the id a is embedded as the id b; None: each as itself.
        zero: id that is embedded as zeros, in whose place are the positions alone; None: no id.

    Attributes:
        rounding: of the table to 8-bit integers; None: it is taken as it is.
    """

    def __init__(
        self,
        weight: nn.Parameter,
        positions: nn.Module,
        *,
        bias: nn.Parameter | None,
        dropout: float,
        scale: float | None = None,
        alias: tuple[int, int] | None = None,
        zero: int | None = None,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.positions = positions
        self.scale = math.sqrt(weight.shape[1]) if scale is None else scale
        self.alias = alias
        self.zero = zero
        self.rounding: Rounding | None = None
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor, start: int = 0, packing: Packing | None = None) -> Tensor:
        """Embed `ids` at positions `start`, `start + 1`, ... of each sentence."""
        if self.alias is not None:
            ids = ids.masked_fill(ids == self.alias[0], self.alias[1])
        table = self.weight if self.rounding is None else self.rounding.weight(self.weight)
        x = F.embedding(ids, table) * self.scale
        if self.bias is not None:
            x = x + self.bias
        if self.zero is not None:
            x = x.masked_fill((ids == self.zero)[..., None], 0)
        where = (start,) if packing is None else (start, packing)
        return self.dropout(self.positions(x, *where))
