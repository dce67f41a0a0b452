"""The one place that chooses how an operation is computed, by device, dtype and training state.

Layers call the functions here; each form of an operation has a module of its own. `sums` chooses
the form of its weighted sums itself.

    cpu_linear            training on a CPU: oneDNN is faster than torch's own products
    cpu_prepacked_linear  inference on a CPU: weights are laid out once, not in each step; int8
    cpu_attention         any attention on a CPU but those below: a third of autograd's passes
    plain_attention       the formula: relative positions, steps on a CPU, weights that are shown
    gpu_attention         packed sentences: the next one in half precision, else torch's kernels
    triton_attention      packed sentences: tiles as small as they are
    cpu_dropout           16 fast random bits for an element, for Mersenne numbers
    gpu_dropout           a hash in compiled layers, for Philox
    sums                  combinations that read all layers: each output is read once in a block
    triton_sums           the same sums on a GPU in training, at the speed of its memory
    gpu_candidates        a step of a beam search on a GPU: three kernels for some forty
    triton_loss           loss and gradient on a GPU: logits are read twice and written once
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.model.kernels import cpu_attention, cpu_dropout, cpu_linear, gpu_attention, gpu_dropout
from nmtdeep.model.kernels.plain_attention import (
    Mask,
    RelativeVectors,
    attention_bias,
    attention_weights,
    join_heads,
    relative_bias,
    separate,
    split_heads,
    weighted_values,
)

LOW_PRECISION = (torch.bfloat16, torch.float16)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x W^T + b, or max(0, x W^T + b), of `(..., in)` and a `(out, in)` weight.

    Under autocast in its dtype, as `torch.nn.functional.linear`. A CPU computes fp32 and bf16 by
    oneDNN, other types and devices by torch's own product, of which max(0, .) is a part on a GPU in
    inference: this form has no gradient.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    if cpu_linear.supports(x, weight, dtype):
        return cpu_linear.linear(x, weight, bias, relu=relu, dtype=dtype)
    infers = not torch.is_grad_enabled() and not torch.is_autocast_enabled("cuda")
    if relu and bias is not None and x.is_cuda and infers:
        y = torch._addmm_activation(bias, x.flatten(0, -2), weight.t())
        return y.view(*x.shape[:-1], len(weight))
    y = F.linear(x, weight, bias)
    return torch.relu(y) if relu else y


def dropout(x: Tensor, probability: float, *, training: bool) -> Tensor:
    """x with each element zero with `probability`, the rest divided by 1 - `probability`.

    A CPU draws the random bits by `cpu_dropout`, a GPU by `gpu_dropout` in a compiled layer;
    elsewhere this is torch's own dropout.
    """
    if not training or probability == 0:
        return x
    if x.device.type == "cpu":
        return x * cpu_dropout.noise(x.shape, probability, x.dtype)
    if gpu_dropout.supports(x):
        return gpu_dropout.dropout(x, probability)
    return F.dropout(x, probability)


def attention(*qkv: Tensor, heads: int, mask: Mask, dropout_p: float = 0.0) -> Tensor:
    """softmax(q k^T / sqrt(d_h)) v (Vaswani et al. 2017, Eq. 1) for all heads and positions.

    Args:
        qkv: q, k and v, each `(sentences, positions, width)`, or packed `(1, tokens, width)`; those
            with the same positions may be one tensor: `qkv`, or `q` and `kv`, or all three.
        heads: number of heads.
        mask: which keys each query reads.
        dropout_p: probability on the attention weights.

    Returns:
        The shape of q, in its dtype.

    A CPU takes `cpu_attention`, a GPU torch's fused kernels, to which relative positions of keys
    are a bias. Relative positions of values need the weights themselves, which no kernel returns:
    there, and with any relative positions on a CPU, the formula is written out, in fp32 at least.
    A packed batch is padded where no fused kernel takes it as it is.
    """
    x, relative = qkv[0], mask.relative
    if mask.queries is not None:
        return _packed_attention(qkv, heads, mask, dropout_p)
    if x.device.type == "cpu" and relative is None:
        dtype = torch.promote_types(x.dtype, torch.float32)
        bias = attention_bias(x.shape[1], mask, dtype, x.device)
        return cpu_attention.attention(*qkv, heads=heads, bias=bias, dropout_p=dropout_p)
    q, k, v = (split_heads(part, heads) for part in separate(qkv))
    if x.device.type != "cpu" and (relative is None or relative[1] is None):
        bias, causal = mask.padding, mask.causal
        if relative is not None:
            bias, causal = relative_bias(q, relative[0], mask), False
        attended = F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, is_causal=causal, dropout_p=dropout_p
        )
        return join_heads(attended)
    with torch.autocast(x.device.type, enabled=False):
        if x.dtype in LOW_PRECISION:
            q, k, v = q.float(), k.float(), v.float()
        bias = attention_bias(q.shape[2], mask, q.dtype, q.device)
        weights = attention_weights(q, k, bias=bias, relative=relative)
        weights = dropout(weights, dropout_p, training=True)
        return join_heads(weighted_values(weights, v, relative=relative).to(x.dtype))


def _packed_attention(qkv: tuple[Tensor, ...], heads: int, mask: Mask, dropout_p: float) -> Tensor:
    """`attention` of packed sentences."""
    queries, keys = mask.queries, mask.keys or mask.queries
    assert queries is not None and keys is not None
    size = sum(part.shape[2] for part in qkv) // (3 * heads)
    form = gpu_attention.form(qkv[0], size, max(queries.longest, keys.longest))
    if form is not None and mask.relative is None:
        return gpu_attention.attention(*qkv, form=form, heads=heads, mask=mask, dropout_p=dropout_p)
    sides = zip((queries, keys, keys), separate(qkv), strict=True)
    q, k, v = (side.pad(part) for side, part in sides)
    padded = Mask(None if mask.causal else keys.mask, mask.causal, mask.relative)
    return queries.pack(attention(q, k, v, heads=heads, mask=padded, dropout_p=dropout_p))


def attention_step(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    bias: Tensor | None,
    relative: RelativeVectors | None = None,
) -> Tensor:
    """`attention` of one decoding step: queries `(sentences, heads, hypotheses, d_h)` read a cache.

    Args:
        keys: `(sentences, heads, entries, d_h)`, as `full_precision` returns; so are the values.
        bias: 0 or -inf, broadcasts to `(sentences, heads, hypotheses, entries)`.
        relative: vectors of relative positions, `(entries, d_h)`.

    A GPU takes torch's fused kernels, except for relative positions; on a CPU the formula written
    out is the fastest form for the few queries of a step.
    """
    if q.device.type != "cpu" and relative is None:
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
    weights = attention_weights(full_precision(q), keys, bias=bias, relative=relative)
    return weighted_values(weights, values, relative=relative).to(q.dtype)


def full_precision(x: Tensor) -> Tensor:
    """`x`; in fp32 if it is bf16 or fp16 on a CPU, where a step computes its attention in fp32."""
    return x.float() if x.device.type == "cpu" and x.dtype in LOW_PRECISION else x


def keep_rows(x: Tensor, rows: Tensor) -> Tensor:
    """`x[rows]`; on a CPU a view of `x`, into which the rows are moved.

    A search fills the rows of finished sentences with the last ones, so that only few rows have to
    be moved; a GPU copies faster than it finds out which.
    """
    if x.device.type != "cpu":
        return x[rows]
    moved = (rows != torch.arange(len(rows))).nonzero()[:, 0]
    x[moved] = x[rows[moved]]
    return x[: len(rows)]
