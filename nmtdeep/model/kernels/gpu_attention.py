"""Attention over packed sentences by the kernels behind torch's own SDPA, on a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from nmtdeep.packing import Packing


def supports(x: Tensor, heads: int) -> bool:
    """Whether a fused kernel computes attention of packed sentences here."""
    dtypes = (torch.float32, torch.bfloat16, torch.float16)
    return x.device.type != "cpu" and x.dtype in dtypes and x.shape[2] // heads % 8 == 0


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Packing,
    keys: Packing,
    *,
    causal: bool,
    dropout_p: float,
) -> Tensor:
    """softmax(q k^T / sqrt(d_h)) v within each sentence.

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
