"""Attention over sentences that follow one another in one row, without padding.

A GPU is fast on many tokens at once, and sentences of all lengths in one padded batch would be more
padding than text. torch calls such a row jagged. All parts of a model that treat each position by
itself take it as `(1, tokens, width)`; attention must know where each sentence ends.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Jagged(NamedTuple):
    """The sentences of a row.

    Attributes:
        offsets: `(sentences + 1,)` int32, the first token of each sentence, and all tokens.
        places: `(tokens,)` int64, sentence times `longest` plus position: where each token is in
            the same batch with padding.
        longest: number of tokens of the longest sentence.
    """

    offsets: Tensor
    places: Tensor
    longest: int

    @property
    def positions(self) -> Tensor:
        """`(tokens,)` position of each token in its sentence, from 0."""
        return self.places % self.longest

    @property
    def mask(self) -> Tensor:
        """`(sentences, 1, 1, longest)`, True at real tokens of the batch with padding."""
        columns = torch.arange(self.longest, device=self.offsets.device)
        return (columns < self.offsets.diff()[:, None])[:, None, None]

    def padded(self, x: Tensor) -> Tensor:
        """A row `(1, tokens, width)` as `(sentences, longest, width)`, zeros at the end."""
        sentences = len(self.offsets) - 1
        rows = x.new_zeros(sentences * self.longest, x.shape[2]).index_copy(0, self.places, x[0])
        return rows.view(sentences, self.longest, -1)

    def unpadded(self, x: Tensor) -> Tensor:
        """Undo `padded`."""
        return x.flatten(0, 1).index_select(0, self.places)[None]


def supports(x: Tensor, heads: int) -> bool:
    """Whether a fused kernel computes attention of such a row here."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    return x.device.type != "cpu" and x.dtype in dtypes and x.shape[2] // heads % 8 == 0


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Jagged,
    keys: Jagged,
    *,
    causal: bool,
    dropout_p: float,
) -> Tensor:
    """softmax(q k^T / sqrt(d_h)) v within each sentence, by the kernels behind torch's own SDPA.

    Args:
        q: `(query tokens, heads, d_h)`; k and v `(key tokens, heads, d_h)`.

    Returns:
        `(query tokens, heads, d_h)`.

    FlashAttention in half precision, the memory-efficient kernel in fp32. torch's public functions
    reach these kernels by nested tensors only, or without dropout (`torch.nn.attention.varlen`).
    """
    offsets = queries.offsets, keys.offsets, queries.longest, keys.longest
    if q.dtype == torch.float32:
        parts = (part[None] for part in (q, k, v))
        read = torch.ops.aten._efficient_attention_forward(
            *parts, None, *offsets, dropout_p, int(causal), compute_log_sumexp=True
        )
        return read[0][0]
    return torch.ops.aten._flash_attention_forward(q, k, v, *offsets, dropout_p, causal, False)[0]
