"""Attention over packed sentences on a GPU by Triton: each head of a sentence is one program.

FlashAttention clears, adds to and reads back a tile of 128 rows for each head of a sentence,
however short it is. Here the side of a tile is that of the longest sentence, 64 at most, and what
fits one tile is computed once in each pass. The merged tensors of projections are read and their
gradients written as they are, so that nothing is taken apart or put together. Tokens after the last
sentence, which fill up a batch, have zeros as results and gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, library

LEVELS = tl.constexpr(2**32)
LOG2_E = tl.constexpr(math.log2(math.e))
WARPS = {16: 1, 32: 2, 64: 4}  # of a program, by the side of its tiles


@triton.jit
def _span(offsets, sentence):
    """First token, in int64, and number of tokens."""
    first = tl.load(offsets + sentence)
    return first.to(tl.int64), tl.load(offsets + sentence + 1) - first


@triton.jit
def _places(base, rows, d: tl.constexpr, stride: tl.constexpr):
    return base + rows[:, None] * stride + tl.arange(0, d)[None, :]


@triton.jit
def _load(base, rows, count, d: tl.constexpr, stride: tl.constexpr):
    """`(rows, d)`; zeros in those from `count` on."""
    return tl.load(_places(base, rows, d, stride), mask=(rows < count)[:, None], other=0.0)


@triton.jit
def _store(base, rows, count, values, d: tl.constexpr, stride: tl.constexpr):
    tl.store(_places(base, rows, d, stride), values, mask=(rows < count)[:, None])


@triton.jit
def _clear(base, first, last, d: tl.constexpr, stride: tl.constexpr, block: tl.constexpr):
    """Zeros in the rows from `first` on, before `last`."""
    for start in range(first, last, block):
        zeros = tl.zeros((block, d), base.dtype.element_ty)
        _store(base, start + tl.arange(0, block), last, zeros, d, stride)


@triton.jit
def _dot(a, b, total):
    return tl.dot(a, b, total, input_precision="ieee", out_dtype=total.dtype)


@triton.jit
def _kept(seed, queries, keys, drop: tl.constexpr):
    """Whether dropout keeps a weight; positions of query and key in their sentence.

    One number of Philox a program, mixed with the positions as in Wellons' `lowbias32`: Philox for
    each weight would take longer than the attention.
    """
    first, second, _, _ = tl.randint4x(seed, tl.program_id(0))
    x = (queries.to(tl.uint32) * 65536 + keys.to(tl.uint32)) ^ first.to(tl.uint32)
    x = ((x ^ (x >> 16)) * 0x7FEB352D) ^ second.to(tl.uint32)
    x = (x ^ (x >> 15)) * 0x846CA68B
    return (x ^ (x >> 16)) >= drop


# fmt: off
@triton.jit(do_not_specialize=["tokens"])
def _forward(
    q, kv, out, lse, seeds, q_offsets, k_offsets, tokens,
    heads: tl.constexpr, d: tl.constexpr, q_stride: tl.constexpr, kv_stride: tl.constexpr,
    causal: tl.constexpr, drop: tl.constexpr, block: tl.constexpr,
):
    """The sums of values, and the base-2 logarithms of the softmax's sums, `(heads, tokens)`."""
    width: tl.constexpr = heads * d
    precise: tl.constexpr = lse.dtype.element_ty
    sentence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    q0, queries = _span(q_offsets, sentence)
    k0, keys = _span(k_offsets, sentence)
    q += q0 * q_stride + head * d
    kv += k0 * kv_stride + (kv_stride - 2 * width) + head * d
    out += q0 * width + head * d
    lse += head.to(tl.int64) * tokens + q0
    seed = tl.load(seeds)
    for start in range(0, queries, block):
        row = start + tl.arange(0, block)
        x = _load(q, row, queries, d, q_stride)
        most = tl.full((block,), -float("inf"), precise)
        total = tl.zeros((block,), precise)
        read = tl.zeros((block, d), precise)
        for first in range(0, tl.minimum(keys, start + block) if causal else keys, block):
            column = first + tl.arange(0, block)
            k = _load(kv, column, keys, d, kv_stride)
            v = _load(kv + width, column, keys, d, kv_stride)
            scores = tl.dot(x, tl.trans(k), input_precision="ieee") * (d**-0.5 * LOG2_E)
            seen = column[None, :] <= (row[:, None] if causal else keys - 1)
            scores = tl.where(seen, scores, -float("inf"))
            highest = tl.maximum(most, tl.max(scores, 1))
            weights = tl.exp2(scores - highest[:, None])
            shrink = tl.exp2(most - highest)
            total = total * shrink + tl.sum(weights, 1)
            if drop > 0:
                weights = tl.where(_kept(seed, row[:, None], column[None, :], drop), weights, 0.0)
            read = _dot(weights.to(v.dtype), v, read * shrink[:, None])
            most = highest
        total = tl.maximum(total, 1.0)  # at least that with any key
        _store(out, row, queries, read / (total * (1 - drop / LEVELS))[:, None], d, width)
        tl.store(lse + row, most + tl.log2(total), mask=row < queries)
    if sentence == tl.num_programs(0) // heads - 1:
        _clear(out, queries, (tokens - q0).to(tl.int32), d, width, block)


@triton.jit
def _block(
    q, out, grad, lse, seed, k, v, row, queries, column, keys, d: tl.constexpr,
    width: tl.constexpr, q_stride: tl.constexpr, causal: tl.constexpr, drop: tl.constexpr,
):
    """Queries, their gradients; `(keys, queries)` weights, dropped, and gradients of scores."""
    x = _load(q, row, queries, d, q_stride)
    g = _load(grad, row, queries, d, width)
    read = _load(out, row, queries, d, width).to(lse.dtype.element_ty)
    sums = tl.load(lse + row, mask=row < queries, other=0.0)
    scores = tl.dot(k, tl.trans(x), input_precision="ieee") * (d**-0.5 * LOG2_E)
    seen = column[:, None] <= (row[None, :] if causal else keys - 1)
    weights = tl.where(seen, tl.exp2(scores - sums[None, :]), 0.0)
    dropped = weights
    towards = tl.dot(v, tl.trans(g), input_precision="ieee")
    if drop > 0:
        kept = _kept(seed, row[None, :], column[:, None], drop)
        dropped = tl.where(kept, weights, 0.0)
        towards = tl.where(kept, towards / (1 - drop / LEVELS), 0.0)
    # d softmax: w (t - sum_k t w), and the sum is that over g out.
    dscores = weights * (towards - tl.sum(g.to(read.dtype) * read, 1)[None, :])
    return x, g, dropped.to(g.dtype), dscores.to(x.dtype)


@triton.jit(do_not_specialize=["tokens", "key_tokens"])
def _backward(
    q, kv, out, lse, seeds, grad, dq, dkv, q_offsets, k_offsets, tokens, key_tokens,
    heads: tl.constexpr, d: tl.constexpr, q_stride: tl.constexpr, kv_stride: tl.constexpr,
    causal: tl.constexpr, drop: tl.constexpr, block: tl.constexpr,
):
    """The gradients of queries, keys and values."""
    width: tl.constexpr = heads * d
    slope: tl.constexpr = d**-0.5
    precise: tl.constexpr = lse.dtype.element_ty
    sentence, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    q0, queries = _span(q_offsets, sentence)
    k0, keys = _span(k_offsets, sentence)
    q += q0 * q_stride + head * d
    dq += q0 * q_stride + head * d
    kv += k0 * kv_stride + (kv_stride - 2 * width) + head * d
    dkv += k0 * kv_stride + (kv_stride - 2 * width) + head * d
    out += q0 * width + head * d
    grad += q0 * width + head * d
    lse += head.to(tl.int64) * tokens + q0
    seed = tl.load(seeds)
    # One turn without keys, too: zeros for the queries.
    for first in range(0, tl.where(queries > 0, tl.maximum(keys, 1), keys), block):
        column = first + tl.arange(0, block)
        k = _load(kv, column, keys, d, kv_stride)
        v = _load(kv + width, column, keys, d, kv_stride)
        dk = tl.zeros((block, d), precise)
        dv = tl.zeros((block, d), precise)
        for start in range(first if causal else 0, queries, block):
            row = start + tl.arange(0, block)
            x, g, weights, dscores = _block(q, out, grad, lse, seed, k, v, row, queries, column,
                                            keys, d, width, q_stride, causal, drop)
            dv = _dot(weights, g, dv)
            dk = _dot(dscores, x, dk)
            if keys <= block:
                back = tl.dot(tl.trans(dscores), k, input_precision="ieee")
                _store(dq, row, queries, back * slope, d, q_stride)
        _store(dkv, column, keys, dk * slope, d, kv_stride)
        _store(dkv + width, column, keys, dv / (1 - drop / LEVELS), d, kv_stride)
    if keys > block:
        for start in range(0, queries, block):
            row = start + tl.arange(0, block)
            back = tl.zeros((block, d), precise)
            for first in range(0, tl.minimum(keys, start + block) if causal else keys, block):
                column = first + tl.arange(0, block)
                k = _load(kv, column, keys, d, kv_stride)
                v = _load(kv + width, column, keys, d, kv_stride)
                _, _, _, dscores = _block(q, out, grad, lse, seed, k, v, row, queries, column,
                                          keys, d, width, q_stride, causal, drop)
                back = _dot(tl.trans(dscores), k, back)
            _store(dq, row, queries, back * slope, d, q_stride)
    if sentence == tl.num_programs(0) // heads - 1:
        _clear(dq, queries, (tokens - q0).to(tl.int32), d, q_stride, block)
        _clear(dkv, keys, (key_tokens - k0).to(tl.int32), d, kv_stride, block)
        _clear(dkv + width, keys, (key_tokens - k0).to(tl.int32), d, kv_stride, block)
# fmt: on


def side(longest: int, mean: float) -> int:
    """Of a tile: one holds the longest sentence, or, of few long ones among short, the others."""
    if longest > 32 and mean > 28:
        return 64
    return 32 if longest > 16 else 16


def _launch(kernel: Any, given: tuple[Any, ...], spans: tuple[Any, ...], dropout: float) -> None:
    """One program for each head of each sentence; `spans` are offsets, longest and causal."""
    q, kv, out, lse, *others = given
    q, kv = q.contiguous(), kv.contiguous()
    *offsets, longest, causal = spans
    heads, sentences = len(lse), len(offsets[0]) - 1
    tokens = (q.shape[1], kv.shape[1])
    block = side(longest, max(tokens) / sentences)
    sizes = (heads, out.shape[2] // heads, q.shape[2], kv.shape[2])
    how = (causal, round(dropout * LEVELS.value), block)
    given = (q, kv, out, lse, *others, *offsets, *tokens[: 1 if kernel is _forward else 2])
    with torch.cuda.device_of(q):
        kernel[(heads * sentences,)](*given, *sizes, *how, num_warps=WARPS[block], num_stages=1)


@library.custom_op(
    "nmtdeep::packed_attention",
    mutates_args=(),
    schema="(Tensor q, Tensor? kv, int heads, float dropout, Tensor q_offsets, Tensor k_offsets,"
    " int longest, bool causal) -> (Tensor, Tensor, Tensor)",
)
def packed_attention(q, kv, heads, dropout, *spans):
    """softmax(q k^T / sqrt(d_h)) v within each sentence.

    Args:
        q: `(1, query tokens, width)`, or with keys and values `(1, tokens, 3 width)`.
        kv: `(1, key tokens, 2 width)`, or None if q has them.
        heads: number of heads.
        dropout: probability on the weights.
        spans: the first token of each sentence, and all of them, `(sentences + 1,)` int32, for
            queries and for keys; tokens of the longest sentence of both; whether a query reads keys
            up to its own position only.

    Returns:
        `(1, query tokens, width)`; for the backward pass, logarithms `(heads, query tokens)` and
        the seed of dropout, which the default generator of the device draws.
    """
    results = _results(q, kv, heads)
    if dropout:
        results[2].random_(2**31 - 1)
    _launch(_forward, (q, q if kv is None else kv, *results), spans, dropout)
    return results


def _results(q: Tensor, kv: Tensor | None, heads: int, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Empty tensors for `packed_attention`."""
    width = q.shape[2] // 3 if kv is None else q.shape[2]
    lse = q.new_empty(heads, q.shape[1], dtype=torch.promote_types(q.dtype, torch.float32))
    return q.new_empty(1, q.shape[1], width), lse, q.new_empty(1, dtype=torch.int64)


@library.custom_op(
    "nmtdeep::packed_attention_backward",
    mutates_args=(),
    schema="(Tensor q, Tensor? kv, Tensor out, Tensor lse, Tensor seed, Tensor grad, float dropout,"
    " Tensor q_offsets, Tensor k_offsets, int longest, bool causal) -> (Tensor, Tensor)",
)
def _packed_backward(q, kv, out, lse, seed, grad, dropout, *spans):
    """The gradients of q and kv; the second is empty without kv."""
    dq, dkv = _gradients(q, kv)
    whole = (q, q, dq) if kv is None else (q, kv, dkv)
    given = (*whole[:2], out, lse, seed, grad.contiguous(), dq, whole[2])
    _launch(_backward, given, spans, dropout)
    return dq, dkv


def _gradients(q: Tensor, kv: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    """Empty tensors for `_packed_backward`."""
    return q.new_empty(q.shape), q.new_empty(0 if kv is None else kv.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, kv, _, dropout, *offsets, longest, causal = inputs
    ctx.save_for_backward(q, kv, *output, *offsets)
    ctx.numbers = dropout, longest, causal
    ctx.set_materialize_grads(False)


def _back(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
    q, kv, out, lse, seed, *offsets = ctx.saved_tensors
    dropout, *numbers = ctx.numbers
    dq, dkv = _packed_backward(q, kv, out, lse, seed, grad, dropout, *offsets, *numbers)
    return dq, None if kv is None else dkv, *[None] * 6


packed_attention.register_fake(_results)
_packed_backward.register_fake(_gradients)
packed_attention.register_autograd(_back, setup_context=_keep)
