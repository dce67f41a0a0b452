"""Attention over packed sentences on a GPU, and which kernel computes it."""

from __future__ import annotations

import torch
from torch import Tensor

from nmtdeep.devices import has_triton
from nmtdeep.model.kernels.plain_attention import Mask, separate

TRITON = has_triton()  # a constant, for the compiler of layers
HALF = (torch.bfloat16, torch.float16)


def form(x: Tensor, size: int, longest: int) -> str | None:
    """The kernel for sentences of up to `longest` tokens and heads of `size`; None: there is none.

    Triton's is the fastest in half precision, until a program has too many tiles in turn. Without
    it, FlashAttention is faster than the memory-efficient kernel from about 64 tokens on (one H200,
    20 to 30 and 90 to 104 tokens, 2026-11-27); it takes neither fp32 nor heads wider than 256.
    """
    half = x.dtype in HALF
    if x.device.type == "cpu" or size % 8 or not (half or x.dtype == torch.float32):
        return None
    if TRITON and half and x.is_cuda and size in (16, 32, 64, 128) and longest <= 256:
        return "triton"
    return "FlashAttention" if half and longest > 64 and size <= 256 else "efficient"


def attention(*qkv: Tensor, form: str, heads: int, mask: Mask, dropout_p: float) -> Tensor:
    """`kernels.attention` of packed sentences by the kernel of that name.

    torch's public functions reach its kernels by nested tensors only, or without dropout
    (`torch.nn.attention.varlen`).
    """
    queries, keys, causal = mask.queries, mask.keys or mask.queries, mask.causal
    assert queries is not None and keys is not None
    spans = queries.offsets, keys.offsets
    if form == "triton":
        from nmtdeep.model.kernels import triton_attention  # absent on most CPUs, slow to import

        q, kv = (*qkv, None)[:2] if len(qkv) < 3 else (qkv[0], torch.cat(qkv[1:], dim=2))
        longest = max(queries.longest, keys.longest)
        given = (q, kv, heads, dropout_p, *spans, longest, causal)
        return triton_attention.packed_attention(*given)[0]
    q, k, v = (part.view(1, part.shape[1], heads, -1) for part in separate(qkv))
    offsets = *spans, queries.longest, keys.longest
    # What these kernels write for queries of a sentence without keys is not defined.
    lost = (keys.offsets.diff() == 0)[queries.places // queries.longest][None, :, None, None]
    q = q.masked_fill(lost, 0.0)
    if form == "efficient":
        read = torch.ops.aten._efficient_attention_forward(
            q, k, v, None, *offsets, dropout_p, int(causal), compute_log_sumexp=True
        )[0]
    else:
        read = torch.ops.aten._flash_attention_forward(
            q[0], k[0], v[0], *offsets, dropout_p, causal, False
        )[0][None]
    return read.masked_fill(lost, 0.0).flatten(2)
