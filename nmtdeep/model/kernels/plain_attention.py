"""Attention written out with torch's operations, for cases that fused kernels do not support.

Relative positions enter between the scores and the weights, and the analysis of attention reads the
weights: fused kernels do not return them. On a CPU one decoding step is fastest in this form.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from nmtdeep.packing import Packing

# Vectors of keys, and of values if these have positions: `(keys, d_h)` or `(queries, keys, d_h)`.
RelativeVectors = tuple[Tensor, Tensor | None]


class Mask(NamedTuple):
    """The keys that each query reads.

    Attributes:
        padding: `(sentences, 1, 1, keys)`, True at real keys; None if all are, or if causality
            hides the others.
        causal: whether a query reads keys up to its own position only.
        relative: vectors of relative positions, `(queries, keys, d_h)`; of packed sentences,
            `(longest, longest, d_h)`.
        queries: the sentences of queries, if they are packed.
        keys: the sentences of keys, if they are packed and not those of the queries.
    """

    padding: Tensor | None = None
    causal: bool = False
    relative: RelativeVectors | None = None
    queries: Packing | None = None
    keys: Packing | None = None


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


def relative_bias(q: Tensor, vectors: Tensor, mask: Mask) -> Tensor:
    """q a^T / sqrt(d_h) and the bias in `attention_bias`, `(sentences, heads, queries, keys)`.

    Args:
        q: `(sentences, heads, queries, d_h)`.
        vectors: vectors a of keys, `(queries, keys, d_h)`; see Shaw et al. 2018, Eq. 4.
        mask: its padding and causality.
    """
    scaled = q * q.shape[-1] ** -0.5
    scores = torch.einsum("bhqd,qkd->bhqk", scaled, vectors.to(q.dtype))
    bias = attention_bias(q.shape[2], mask, scores.dtype, q.device)
    return scores if bias is None else scores + bias


def attention_bias(
    queries: int, mask: Mask, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    """0 where a query may attend, else -inf; None if all queries may attend everywhere.

    `(queries, queries)` without padding, else `(sentences, 1, 1, keys)`, or with causality
    `(sentences, 1, queries, queries)`.
    """
    bias = None
    if mask.causal:
        bias = torch.full((queries, queries), -math.inf, dtype=dtype, device=device).triu_(1)
    if mask.padding is None:
        return bias
    hidden = torch.zeros(mask.padding.shape, dtype=dtype, device=device)
    hidden.masked_fill_(~mask.padding, -math.inf)
    return hidden if bias is None else hidden + bias


def separate(qkv: tuple[Tensor, ...]) -> list[Tensor]:
    """q, k and v, each `(..., width)`, of tensors that may hold several of them."""
    width = sum(part.shape[2] for part in qkv) // 3
    return [part for each in qkv for part in each.chunk(each.shape[2] // width, dim=2)]


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`(sentences, positions, width)` to `(sentences, heads, positions, width / heads)`."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Undo `split_heads`."""
    return x.transpose(1, 2).flatten(2)
