"""Label-smoothed cross-entropy and its gradient by Triton, row by row over the logits."""

import torch
import triton
import triton.language as tl
from torch import Tensor, library

# Pieces that a program reads at once: 16 bytes of half precision each.
PIECES, PIECE = tl.constexpr(1024), tl.constexpr(8)
WARPS = 16  # rows are read twice: with fewer, those of one time would not fit the cache


@library.custom_op("nmtdeep::losses", mutates_args=("logits",))
def losses(logits: Tensor, targets: Tensor, smoothing: float, pad: int) -> Tensor:
    """`(2, positions)` losses and negative log-likelihoods: terms of `training.loss.fused_sums`.

    The gradient replaces the logits `(positions, types)`, which are contiguous.
    """
    positions, types = logits.shape
    result = logits.new_empty(2, positions, dtype=torch.float32)
    rest = smoothing / (types - 1)
    numbers = positions, pad, 1 - smoothing - rest, rest, types
    _losses[positions,](logits, targets, result, *numbers, num_warps=WARPS)
    return result


losses.register_fake(lambda x, *_: x.new_empty(2, len(x), dtype=torch.float32))


@triton.jit(do_not_specialize=["positions", "pad"], do_not_specialize_on_alignment=["targets"])
def _losses(logits, targets, out, positions, pad, more, rest, types: tl.constexpr):
    """q is `rest`, and `more` than that at the target; `types` is constant for its factors of 2."""
    row = tl.program_id(0)
    target = tl.load(targets + row).to(tl.int32)
    logits += row.to(tl.int64) * types
    piece = tl.arange(0, PIECES)[:, None] * PIECE + tl.arange(0, PIECE)[None, :]
    loss, nll = 0.0, 0.0
    if target != pad:
        at_target = tl.load(logits + target).to(tl.float32)
        mass, everything = tl.zeros((PIECES,), tl.float32), tl.zeros((PIECES,), tl.float32)
        highest = mass - 1e30  # a difference to -inf is a number
        for first in range(0, types, PIECES * PIECE):
            place, inside = logits + first + piece, first + piece < types
            x = tl.load(place, inside, -float("inf"), eviction_policy="evict_last").to(tl.float32)
            before, highest = highest, tl.maximum(highest, tl.max(x, 1))
            mass = mass * tl.exp(before - highest) + tl.sum(tl.exp(x - highest[:, None]), 1)
        top = tl.max(highest, 0)
        norm = tl.log(tl.sum(mass * tl.exp(highest - top), 0))
        nll = norm - (at_target - top)
        for first in range(0, types, PIECES * PIECE):
            place, inside = logits + first + piece, first + piece < types
            x = tl.load(place, inside, eviction_policy="evict_first").to(tl.float32)
            log_p = (x - top) - norm
            everything -= tl.sum(tl.where(inside, log_p, 0.0), 1)
            gradient = tl.exp(log_p) - rest - tl.where(first + piece == target, more, 0.0)
            tl.store(place, gradient, mask=inside)
        loss = more * nll + rest * tl.sum(everything, 0)
    else:
        for first in range(0, types, PIECES * PIECE):
            tl.store(logits + first + piece, 0.0, mask=first + piece < types)
    tl.store(out + row, loss)
    tl.store(out + positions + row, nll)
