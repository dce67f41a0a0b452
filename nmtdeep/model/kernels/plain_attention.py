"""Attention written out with torch's operations, for cases that fused kernels do not support.

Relative positions enter between the scores and the weights, and the analysis of attention reads the
weights: fused kernels do not return them. On a CPU one decoding step is fastest in this form.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Vectors of keys, and of values if these have positions: `(keys, d_h)` or `(queries, keys, d_h)`.
RelativeVectors = tuple[Tensor, Tensor | None]


def attention_weights(
    q: Tensor, k: Tensor, *, bias: Tensor | None, relative: RelativeVectors | None = None
) -> Tensor:
    """softmax(q (k + a)^T / sqrt(d_h) + bias), `(sentences, heads, queries, keys)`.

    Args:
        q: `(sentences, heads, queries, d_h)`; k has keys instead of queries.
        bias: 0 or -inf, broadcasts to the result.
        relative: vectors a; see Shaw et al. 2018, Eq. 4.
    """
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(2, 3)
    if relative is not None:
        vectors = relative[0].to(q.dtype)
        each = vectors.dim() == 3
        scores += torch.einsum("bhqd,qkd->bhqk", q, vectors) if each else q @ vectors.T
    if bias is not None:
        scores += bias
    return scores.softmax(dim=3)


def weighted_values(weights: Tensor, v: Tensor, *, relative: RelativeVectors | None) -> Tensor:
    """weights (v + a), `(sentences, heads, queries, d_h)`; see Shaw et al. 2018, Eq. 3."""
    read = weights @ v
    if relative is not None and relative[1] is not None:
        vectors = relative[1].to(weights.dtype)
        each = vectors.dim() == 3
        read += torch.einsum("bhqk,qkd->bhqd", weights, vectors) if each else weights @ vectors
    return read


def relative_bias(q: Tensor, vectors: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """q a^T / sqrt(d_h) and the bias of `attention_bias`, `(sentences, heads, queries, keys)`.

    Args:
        q: `(sentences, heads, queries, d_h)`.
        vectors: vectors a of keys, `(queries, keys, d_h)`; see Shaw et al. 2018, Eq. 4.
        mask, causal: as of `kernels.attention`.
    """
    scaled = q * q.shape[-1] ** -0.5
    scores = torch.einsum("bhqd,qkd->bhqk", scaled, vectors.to(q.dtype))
    bias = attention_bias(q.shape[2], mask, causal, scores.dtype, q.device)
    return scores if bias is None else scores + bias


def attention_bias(
    queries: int, mask: Tensor | None, causal: bool, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """0 where a query may attend, else -inf; None if all queries may attend everywhere.

    `(queries, queries)` without a mask, else `(sentences, 1, 1, keys)`, or with causality
    `(sentences, 1, queries, queries)`.
    """
    bias = None
    if causal:
        bias = torch.full((queries, queries), -math.inf, dtype=dtype, device=device).triu_(1)
    if mask is None:
        return bias
    hidden = torch.zeros(mask.shape, dtype=dtype, device=device).masked_fill_(~mask, -math.inf)
    return hidden if bias is None else hidden + bias


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`(sentences, positions, width)` to `(sentences, heads, positions, width / heads)`."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Undo `split_heads`."""
    return x.transpose(1, 2).flatten(2)
