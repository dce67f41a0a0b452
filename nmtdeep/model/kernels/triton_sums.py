"""Weighted sums of long rows, and their inner products, by kernels that read each row once.

cuBLAS computes products of so few rows as those with a vector, at a fraction of the memory's speed.
The operators have names, so that tensors without numbers pass through them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers of a row that one program sums: 16 bytes of half precision for each of 128 threads.
BLOCK = 1024
# Numbers of a row whose inner products one program computes, and how many of them at once.
PART, PIECE = 1 << 14, 64


@torch.library.custom_op(
    "nmtdeep::weighted_sums",
    mutates_args=(),
    schema="(Tensor weights, Tensor rows, Tensor? start, ScalarType dtype) -> Tensor",
)
def weighted_sums(
    weights: Tensor, rows: Tensor, start: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """start_r + sum_k weights_rk rows_k, summed in fp32.

    Args:
        weights: `(results, rows)` of any strides; few results.
        rows: `(rows, numbers)`, contiguous.
        start: `(results, numbers)`, contiguous; None: zero.
        dtype: of the result, `(results, numbers)`.
    """
    results, numbers = len(weights), rows.shape[1]
    result = rows.new_empty(results, numbers, dtype=dtype)
    sizes = len(rows), numbers, *weights.stride()
    _sum[triton.cdiv(numbers, BLOCK),](weights, rows, start, result, *sizes, results, BLOCK)
    return result


@weighted_sums.register_fake
def _(weights: Tensor, rows: Tensor, start: Tensor | None, dtype: torch.dtype) -> Tensor:
    return rows.new_empty(len(weights), rows.shape[1], dtype=dtype)


@torch.library.custom_op(
    "nmtdeep::dot_products", mutates_args=(), schema="(Tensor one, Tensor other) -> Tensor"
)
def dot_products(one: Tensor, other: Tensor) -> Tensor:
    """<one_i, other_j> in fp32 of rows `(rows, numbers)`, contiguous and as many in both.

    Returns:
        `(parts, rows, rows)`: of parts of the rows, whose sum they are.
    """
    count, numbers = one.shape
    parts = triton.cdiv(numbers, PART)
    result = one.new_empty(parts, count, count, dtype=torch.float32)
    padded = max(16, triton.next_power_of_2(count))
    _dots[parts,](one, other, result, count, numbers, padded, PART, PIECE)
    return result


@dot_products.register_fake
def _(one: Tensor, other: Tensor) -> Tensor:
    parts = -(-one.shape[1] // PART)
    return one.new_empty(parts, len(one), len(one), dtype=torch.float32)


@triton.jit(
    do_not_specialize=["count", "by_result", "by_row"], do_not_specialize_on_alignment=["weights"]
)
def _sum(
    weights,
    rows,
    start,
    result,
    count,
    numbers,
    by_result,
    by_row,
    results: tl.constexpr,
    block: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < numbers
    totals = ()
    for _ in tl.static_range(results):
        total = tl.full((block,), 0.0, tl.float32)
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
        tl.store(result + place, totals[r], mask=inside)
        result += numbers


@triton.jit(do_not_specialize=["count"])
def _dots(
    one,
    other,
    result,
    count,
    numbers,
    padded: tl.constexpr,
    size: tl.constexpr,
    piece: tl.constexpr,
):
    part = tl.program_id(0).to(tl.int64)
    row = tl.arange(0, padded)
    total = tl.full((padded, padded), 0.0, tl.float32)
    for first in range(0, size, piece):
        place = part * size + first + tl.arange(0, piece)
        inside = (row < count)[:, None] & (place < numbers)[None, :]
        at = row[:, None] * numbers.to(tl.int64) + place[None, :]
        left = tl.load(one + at, mask=inside, other=0.0)
        right = tl.load(other + at, mask=inside, other=0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision="ieee")
    at = part * count * count + row[:, None] * count + row[None, :]
    tl.store(result + at, total, mask=(row < count)[:, None] & (row < count)[None, :])
