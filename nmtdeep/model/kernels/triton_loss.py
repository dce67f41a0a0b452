"""Label-smoothed cross-entropy and its gradient on a GPU: a program for each row of logits.

A program reads its row twice, the second time from the cache, and writes the gradient over it. What
is summed while it reads stays with each thread until the end of the row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# A program reads so many pieces at once: 16 bytes of half precision each.
PIECES, PIECE = tl.constexpr(1024), tl.constexpr(8)
WARPS = 16  # with fewer, more rows than the cache holds would be computed at a time
LOWEST = tl.constexpr(-1e30)  # below each logit; a difference to -inf is a number


@torch.library.custom_op(
    "nmtdeep::losses",
    mutates_args=("logits",),
    schema="(Tensor(a!) logits, Tensor targets, float smoothing, int pad) -> Tensor",
)
def losses(logits: Tensor, targets: Tensor, smoothing: float, pad: int) -> Tensor:
    """Loss and negative log-likelihood of each position, `(2, positions)` in fp32.

    Their sums are those of `training.loss.fused_sums`; the gradient of the first replaces the
    logits.

    Args:
        logits: `(positions, types)`, contiguous; in fp32 or half precision.
        targets: `(positions,)` ids, contiguous.
        pad: id of targets that do not count.
    """
    positions, types = logits.shape
    result = logits.new_empty(2, positions, dtype=torch.float32)
    rest = smoothing / (types - 1)
    numbers = positions, pad, 1 - smoothing - rest, rest, types
    _losses[positions,](logits, targets, result, *numbers, num_warps=WARPS)
    return result


@losses.register_fake
def _(logits: Tensor, targets: Tensor, smoothing: float, pad: int) -> Tensor:
    return logits.new_empty(2, len(targets), dtype=torch.float32)


@triton.jit(do_not_specialize=["positions", "pad"], do_not_specialize_on_alignment=["targets"])
def _losses(logits, targets, out, positions, pad, more, rest, types: tl.constexpr):
    """q is `rest` everywhere, and `more` than that at the target.

    As a constant, any even share of 16 bytes in a row is known to the compiler.
    """
    row = tl.program_id(0)
    target = tl.load(targets + row).to(tl.int32)
    logits += row.to(tl.int64) * types
    piece = tl.arange(0, PIECES)[:, None] * PIECE + tl.arange(0, PIECE)[None, :]
    loss, nll = 0.0, 0.0
    if target == pad:
        for first in range(0, types, PIECES * PIECE):
            column = first + piece
            tl.store(logits + column, 0.0, mask=column < types)
    else:
        at_target = tl.load(logits + target).to(tl.float32)
        most = tl.full((PIECES,), LOWEST, tl.float32)
        mass = tl.zeros((PIECES,), tl.float32)
        for first in range(0, types, PIECES * PIECE):
            column = first + piece
            place, inside = logits + column, column < types
            x = tl.load(place, inside, -float("inf"), eviction_policy="evict_last").to(tl.float32)
            highest = tl.maximum(most, tl.max(x, 1))
            mass = mass * tl.exp(most - highest) + tl.sum(tl.exp(x - highest[:, None]), 1)
            most = highest
        top = tl.max(most, 0)
        norm = tl.log(tl.sum(mass * tl.exp(most - top), 0))
        nll = norm - (at_target - top)
        everything = tl.zeros((PIECES,), tl.float32)
        for first in range(0, types, PIECES * PIECE):
            column = first + piece
            place, inside = logits + column, column < types
            x = tl.load(place, inside, eviction_policy="evict_first").to(tl.float32)
            log_p = (x - top) - norm
            everything -= tl.sum(tl.where(inside, log_p, 0.0), 1)
            gradient = tl.exp(log_p) - rest - tl.where(column == target, more, 0.0)
            tl.store(place, gradient, mask=inside)
        loss = more * nll + rest * tl.sum(everything, 0)
    tl.store(out + row, loss)
    tl.store(out + positions + row, nll)
