# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators
"""The best continuations of a beam search on a GPU, in Triton: three kernels for some forty.

Two operators of torch read the logits x `(sentences * hypotheses, types)` once each, in their
dtype: `nmtdeep::normalized`, totals `(sentences, hypotheses)` in fp32 less log sum exp of each row;
and, after tokens are banned, `nmtdeep::candidates`, the parts of a `Continued` of the search, where
ties go to the lower code. All are contiguous; size times types are at most `MOST`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, library

WIDTH = 64  # of the blocks of types whose maxima show where the best are
MOST = 8192 * WIDTH  # elements of a sentence


@triton.jit
def _subtract(x, totals, result, types: tl.constexpr, chunk: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, chunk)
    greatest = tl.full((), -3e38, tl.float32)
    total = tl.zeros((chunk,), tl.float32)
    for first in range(0, types, chunk):
        inside = first + column < types
        part = tl.load(x + row * types + first + column, mask=inside, other=-float("inf"))
        larger = tl.maximum(greatest, tl.max(part.to(tl.float32), axis=0))
        total = total * tl.exp(greatest - larger) + tl.exp(part.to(tl.float32) - larger)
        greatest = larger
    log_sum = greatest + tl.log(tl.sum(total, axis=0))
    tl.store(result + row, tl.load(totals + row) - log_sum)


@triton.jit
def _maxima(x, maxima, types: tl.constexpr, blocks, tile: tl.constexpr, width: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    number = tl.program_id(1) * tile + tl.arange(0, tile)
    column = number[:, None] * width + tl.arange(0, width)[None, :]
    part = tl.load(x + row * types + column, mask=column < types, other=-float("inf"))
    greatest = tl.max(part.to(tl.float32), axis=1)
    tl.store(maxima + row * blocks + number, greatest, mask=number < blocks)


@triton.jit
def _key(x, number):
    """An int64 that is greater if x is, or if x is equal and `number`, below 2^32, is less."""
    bits = x.to(tl.int32, bitcast=True)
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) << 32) - number


@triton.jit
def _choose(
    x, maxima, totals, found, best, rows, tokens, hypotheses, types, blocks, eos,
    every: tl.constexpr, ranks: tl.constexpr, size: tl.constexpr, places: tl.constexpr,
    width: tl.constexpr,
):  # fmt: skip
    """The candidates of one sentence: the best blocks, then the best elements of these."""
    least: tl.constexpr = -(2**63)
    sentence, number = tl.program_id(0).to(tl.int64), tl.arange(0, every)
    first, count = sentence * hypotheses, hypotheses * blocks
    inside = number < count
    before = tl.load(totals + first + number // blocks, mask=inside, other=0.0)
    greatest = tl.load(maxima + first * blocks + number, mask=inside, other=0.0)
    keys = tl.where(inside, _key(greatest + before, number), least)
    place = tl.arange(0, places)
    chosen = tl.full((places,), 0, tl.int64) + count
    for rank in range(ranks):
        key = tl.max(keys, axis=0)
        chosen = tl.where((place == rank) & (key > least), -key & 0xFFFFFFFF, chosen)
        keys = tl.where(keys == key, least, keys)
    origin = chosen // blocks
    column = (chosen % blocks)[:, None] * width + tl.arange(0, width)[None, :]
    inside = (chosen < count)[:, None] & (column < types)
    each = tl.load(x + (first + origin)[:, None] * types + column, mask=inside, other=0.0)
    before = tl.load(totals + first + origin, mask=chosen < count, other=0.0)
    sums = each.to(tl.float32) + before[:, None]
    keys = tl.where(inside, _key(sums, origin[:, None] * types + column), least)
    going = 0
    for rank in range(ranks + size):  # behind the candidates, ends fill what does not go on
        key = tl.max(tl.max(keys, axis=1), axis=0)
        keys = tl.where(keys == key, least, keys)
        real = (key > least) & (rank < ranks)
        code = tl.where(real, -key & 0xFFFFFFFF, eos)
        bits = ((key + 0xFFFFFFFF) >> 32).to(tl.int32)
        total = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        total = tl.where(real, total, -float("inf"))
        at = found + sentence * ranks + rank
        tl.store(at, total.to(tl.float64), mask=rank < ranks)
        tl.store(at + tl.num_programs(0) * ranks, code.to(tl.float64), mask=rank < ranks)
        goes = ((code % types != eos) | (rank >= ranks)) & (going < size)
        tl.store(best + sentence * size + going, total, mask=goes)
        tl.store(rows + sentence * size + going, first + code // types, mask=goes)
        tl.store(tokens + sentence * size + going, code % types, mask=goes)
        going += goes.to(tl.int32)


def _normalized(x: Tensor, totals: Tensor) -> Tensor:
    result = torch.empty_like(totals)
    _subtract[(len(x),)](x, totals, result, x.shape[1], chunk=4096)
    return result


def _candidates(x: Tensor, totals: Tensor, size: int, eos: int) -> list[Tensor]:
    (sentences, hypotheses), types = totals.shape, x.shape[1]
    blocks, ranks = -(-types // WIDTH), 2 * size if size > 1 else 1
    maxima = totals.new_empty(len(x), blocks)
    _maxima[(len(x), -(-blocks // 64))](x, maxima, types, blocks, tile=64, width=WIDTH)
    parts = _parts(x, totals, size)
    every, places = map(triton.next_power_of_2, (hypotheses * blocks, ranks))
    _choose[(sentences,)](
        x, maxima, totals, *parts, hypotheses, types, blocks, eos, every=every, ranks=ranks,
        size=size, places=places, width=WIDTH, num_warps=8 if every > 1024 else 4,
    )  # fmt: skip
    return parts


def _parts(x: Tensor, totals: Tensor, size: int, eos: int = 0) -> list[Tensor]:
    sentences, ranks = len(totals), 2 * size if size > 1 else 1
    found = totals.new_empty(2, sentences, ranks, dtype=torch.double)
    rows, tokens = (totals.new_empty(sentences * size, dtype=torch.long) for _ in range(2))
    return [found, totals.new_empty(sentences, size), rows, tokens]


LIBRARY = library.Library("nmtdeep", "FRAGMENT")
for schema, compute, empty in (
    (
        "normalized(Tensor x, Tensor totals) -> Tensor",
        _normalized,
        lambda _, x: x.new_empty(x.shape),
    ),
    ("candidates(Tensor x, Tensor totals, int size, int eos) -> Tensor[]", _candidates, _parts),
):
    LIBRARY.define(schema)
    LIBRARY.impl(compute.__name__[1:], compute, "CUDA")
    library.register_fake(f"nmtdeep::{compute.__name__[1:]}", empty, lib=LIBRARY)
