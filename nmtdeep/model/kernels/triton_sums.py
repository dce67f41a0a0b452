"""Weighted sums of long rows, which are read once.

cuBLAS computes products of so few rows as those with a vector, at a fraction of the memory's speed.
The kernel is an operator of torch, so that tensors without numbers pass through it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, library

# Numbers of a row that one program sums: 16 bytes of half precision for each of 128 threads.
BLOCK = tl.constexpr(1024)


@library.custom_op(
    "nmtdeep::weighted_sums",
    mutates_args=(),
    schema="(Tensor weights, Tensor rows, Tensor? start, ScalarType dtype) -> Tensor",
)
def weighted_sums(
    weights: Tensor, rows: Tensor, start: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """start_r + sum_k weights_rk rows_k, summed in fp32.

    Args:
        weights: `(results, rows, 1)` of any strides; few results.
        rows: `(rows, numbers)`, contiguous.
        start: `(results, numbers)`, contiguous; None: zero.
        dtype: of the result, `(results, numbers)`.
    """
    results, numbers = len(weights), rows.shape[1]
    result = rows.new_empty(results, numbers, dtype=dtype)
    sizes = len(rows), numbers, weights.stride(0), weights.stride(1)
    _sum[triton.cdiv(numbers, BLOCK.value),](weights, rows, start, result, *sizes, results)
    return result


@weighted_sums.register_fake
def _(weights: Tensor, rows: Tensor, start: Tensor | None, dtype: torch.dtype) -> Tensor:
    return rows.new_empty(len(weights), rows.shape[1], dtype=dtype)


@triton.jit(
    do_not_specialize=["count", "by_result", "by_row"], do_not_specialize_on_alignment=["weights"]
)
def _sum(weights, rows, start, out, count, numbers, by_result, by_row, results: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < numbers
    totals = ()
    for _ in tl.static_range(results):
        total = tl.full((BLOCK,), 0.0, tl.float32)
        if start is not None:
            total += tl.load(start + place, mask=inside)
            start += numbers
        totals += (total,)
    for k in tl.range(count, loop_unroll_factor=4):
        row = tl.load(rows + place, mask=inside).to(tl.float32)
        rows += numbers
        sums = ()
        for r in tl.static_range(results):
            weight = tl.load(weights + r * by_result + k * by_row)
            sums += (totals[r] + weight * row,)
        totals = sums
    for r in tl.static_range(results):
        tl.store(out + place, totals[r], mask=inside)
        out += numbers
