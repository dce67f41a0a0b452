"""Multi-head attention on a CPU with few passes over memory, gradients written out.

On a CPU torch's fused kernels are several times slower at the lengths of sentences, and slower
still in the backward pass in bf16; autograd over plain products copies queries, keys and values
once each for splitting, casting and transposing. Here each goes to `(sentences, heads, positions,
d_h)` in fp32 in one pass, and its gradient back in another.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor

from nmtdeep.model.kernels.cpu_dropout import noise

VECTOR = 16  # fp32 numbers in a register: torch's softmax of shorter rows is not vectorized


def attention(*packed: Tensor, heads: int, bias: Tensor | None, dropout_p: float) -> Tensor:
    """softmax(q k^T / sqrt(d_h) + bias) v for all heads; see `kernels.attention`.

    Args:
        bias: `(queries, keys)`, or `(sentences, 1, 1 or queries, keys)`; see `attention_bias`.

    Returns:
        `(sentences, queries, width)` in the dtype of `packed`, computed in fp32 at least.
    """
    with torch.autocast("cpu", enabled=False):
        return _Attention.apply(heads, bias, dropout_p, *packed)  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    """The formula with its gradients; arguments as in `attention`."""

    @staticmethod
    def forward(
        ctx: Any, heads: int, bias: Tensor | None, dropout_p: float, *packed: Tensor
    ) -> Tensor:
        width = sum(x.shape[-1] for x in packed) // 3
        split = [_heads_first(x, x.shape[-1] // width, heads) for x in packed]
        q, k, v = chain.from_iterable(split)
        scale = q.shape[-1] ** -0.5
        if bias is None:
            scores = torch.bmm(q * scale, k.transpose(1, 2))
        else:
            if bias.dim() == 4:
                bias = bias.expand(-1, heads, -1, -1).flatten(0, 1)
            scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
        if scores.shape[2] >= VECTOR:
            weights = scores.softmax(dim=2)
        else:
            scores.sub_(scores.amax(dim=2, keepdim=True)).exp_()
            weights = scores.div_(scores.sum(dim=2, keepdim=True))
        mask = noise(weights.shape, dropout_p, weights.dtype) if dropout_p else None
        read = torch.bmm(weights if mask is None else weights * mask, v)
        ctx.heads, ctx.scale = heads, scale
        ctx.dtypes = [x.dtype for x in packed]
        ctx.save_for_backward(weights, mask, *split)
        return _heads_last(read[None], heads, packed[0].dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, mask, *split = ctx.saved_tensors
        q, k, v = chain.from_iterable(split)
        (read,) = _heads_first(gradients[0], 1, ctx.heads)
        grads = [torch.empty_like(parts) for parts in split]
        grad_q, grad_k, grad_v = chain.from_iterable(grads)
        dropped = weights if mask is None else weights * mask
        torch.bmm(dropped.transpose(1, 2), read, out=grad_v)
        grad_weights = torch.bmm(read, v.transpose(1, 2))
        if mask is not None:
            grad_weights.mul_(mask)
        # d softmax: w (g - sum_k g w); the scale of the scores goes to q and k.
        grad_scores = grad_weights.mul_(weights)
        sums = grad_scores.sum(dim=2, keepdim=True)
        grad_scores.addcmul_(weights, sums, value=-1).mul_(ctx.scale)
        torch.bmm(grad_scores, k, out=grad_q)
        torch.bmm(grad_scores.transpose(1, 2), q, out=grad_k)
        back = (
            _heads_last(parts, ctx.heads, dtype)
            for parts, dtype in zip(grads, ctx.dtypes, strict=True)
        )
        return None, None, None, *back


def _heads_first(x: Tensor, parts: int, heads: int) -> Tensor:
    """`(sentences, positions, parts width)` to `(parts, sentences heads, positions, d_h)`."""
    sentences, positions, all_parts = x.shape
    depth = all_parts // parts // heads
    dtype = torch.promote_types(x.dtype, torch.float32)
    out = x.new_empty(parts, sentences, heads, positions, depth, dtype=dtype)
    out.copy_(x.view(sentences, positions, parts, heads, depth).permute(2, 0, 3, 1, 4))
    return out.flatten(1, 2)


def _heads_last(x: Tensor, heads: int, dtype: torch.dtype) -> Tensor:
    """Undo `_heads_first`, in `dtype`."""
    parts, _, positions, depth = x.shape
    split = x.view(parts, -1, heads, positions, depth)
    out = x.new_empty(split.shape[1], positions, parts, heads, depth, dtype=dtype)
    out.copy_(split.permute(1, 3, 0, 2, 4))
    return out.flatten(2)
