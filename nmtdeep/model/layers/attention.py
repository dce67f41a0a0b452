"""Multi-head attention (Vaswani et al. 2017, section 3.2) over a stack itself or a memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.model.layers import cpu_attention
from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.dropout import dropout as drop
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.parameters import Matrix, matrix, projections
from nmtdeep.model.layers.positions import RelativePositions


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    relative: RelativePositions | None = None,
) -> Tensor:
    """softmax(q k^T / sqrt(d_h)) v (Eq. 1), each of shape `(sentences, heads, positions, d_h)`.

    Args:
        mask: broadcasts to `(sentences, heads, queries, keys)`, True where a query may attend.
        causal: a query may attend to keys up to its own place only.
        dropout: probability on the attention weights.
        relative: positions of keys, and perhaps of values, as seen from each query.

    A GPU runs torch's fused kernels, but where relative positions need the weights themselves. On
    a CPU those kernels are several times slower than plain matrix products at the lengths of
    sentences, and slower still backwards in bf16: there the formula is written out, in fp32 also
    under bf16.
    """
    if q.device.type != "cpu" and relative is None:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, dropout_p=dropout
        )
    dtype = q.dtype
    with torch.autocast(q.device.type, enabled=False):
        if dtype in (torch.bfloat16, torch.float16):
            q, k, v = q.float(), k.float(), v.float()
        q = q * q.shape[-1] ** -0.5
        scores = q @ k.transpose(2, 3)
        if relative is not None:
            scores = scores + relative.scores(q, k.shape[2])
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        if causal:
            scores = scores + _causal(q.shape[2], q.dtype, q.device)
        weights = drop(scores.softmax(dim=3), dropout, training=dropout > 0)
        read = weights @ v if relative is None else relative.read(weights, v)
        return read.to(dtype)


@lru_cache(maxsize=512)
def _causal(length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`(queries, keys)`: 0 where a query may attend, -inf at keys behind it."""
    with torch.inference_mode(False):
        return torch.full((length, length), -math.inf, dtype=dtype, device=device).triu(1)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """`(sentences, positions, width)` to `(sentences, heads, positions, width / heads)`."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Undo `split_heads`."""
    return x.transpose(1, 2).flatten(2)


class KeyValues:
    """Keys and values of the positions so far, `(rows, heads, steps, d_h)`."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest position and return all."""
        if self.keys is not None and self.values is not None:
            keys = torch.cat((self.keys, keys), dim=2)
            values = torch.cat((self.values, values), dim=2)
        self.keys, self.values = keys, values
        return keys, values

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep hypotheses `rows`."""
        if self.keys is not None and self.values is not None:
            self.keys, self.values = self.keys[rows], self.values[rows]


class SelfAttention(Sublayer):
    """Attention of a stack over itself, `(sentences, positions, width)` to the same.

    Args:
        width: model width d.
        heads: number of heads; divides the width.
        dropout: probability on the attention weights.
        causal: True lets a position see itself and what stands before it only.
        bias: whether the projections have one.
        relative: relative positions of this sublayer, or None.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        dropout: float = 0.0,
        causal: bool,
        bias: bool = True,
        relative: RelativePositions | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.causal = causal
        self.qkv = Linear(width, 3 * width, bias=bias)
        self.output = Linear(width, width, bias=bias)
        self.relative = relative

    def matrices(self) -> Iterator[Matrix]:
        """The four projections, and the tables of relative positions."""
        yield from projections(self.qkv.weight, ("query", "key", "value"))
        yield matrix(self.output, "output")
        if self.relative is not None:
            yield from self.relative.matrices()

    def start(self, context: Context) -> KeyValues:
        """No position yet."""
        return KeyValues()

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Attend from every position of `x`; with a state, from the newest to all so far."""
        qkv = self.qkv(x)
        dropout = self.dropout if self.training else 0.0
        if x.device.type == "cpu" and state is None and self.relative is None:
            mixed = cpu_attention.attention(
                qkv, heads=self.heads, mask=context.mask, causal=self.causal, dropout=dropout
            )
            return self.output(mixed)  # type: ignore[no-any-return]
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, dim=-1))
        if isinstance(state, KeyValues):
            k, v = state.append(k, v)
        attended = attend(
            q,
            k,
            v,
            mask=context.mask,
            causal=self.causal and state is None,
            dropout=dropout,
            relative=self.relative,
        )
        return self.output(join_heads(attended))  # type: ignore[no-any-return]


class MemoryKeyValues:
    """Keys and values of the encoder's output: once per sentence, shared by its hypotheses."""

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> None:
        self.keys = keys
        self.values = values
        self.mask = mask

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep `sentences`."""
        if sentences is not None:
            self.keys, self.values = self.keys[sentences], self.values[sentences]
            self.mask = None if self.mask is None else self.mask[sentences]


class CrossAttention(Sublayer):
    """Attention of the decoder over the encoder's output.

    Args:
        width: model width d.
        heads: number of heads; divides the width.
        dropout: probability on the attention weights.
        bias: whether the projections have one.
    """

    def __init__(self, width: int, heads: int, *, dropout: float = 0.0, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = Linear(width, width, bias=bias)
        self.key_value = Linear(width, 2 * width, bias=bias)
        self.output = Linear(width, width, bias=bias)

    def matrices(self) -> Iterator[Matrix]:
        """The four projections."""
        yield from projections(self.query.weight, ("query",), across=True)
        yield from projections(self.key_value.weight, ("key", "value"), across=True)
        yield matrix(self.output, "output")

    def start(self, context: Context) -> MemoryKeyValues:
        """Project the memory once."""
        k, v = self.key_value(_memory(context)).chunk(2, dim=-1)
        return MemoryKeyValues(
            split_heads(k, self.heads), split_heads(v, self.heads), context.memory_mask
        )

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Attend from every position of `x` to the memory.

        With a state, `x` is `(sentences * hypotheses, 1, width)` and the hypotheses of a sentence
        are its query positions, so that the memory is never copied for each of them.
        """
        return self.output(self.attended(x, context, state))  # type: ignore[no-any-return]

    def attended(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """What `forward` computes, before the output projection."""
        dropout = self.dropout if self.training else 0.0
        if x.device.type == "cpu" and state is None:
            key_value = self.key_value(_memory(context))
            return cpu_attention.attention(
                self.query(x),
                key_value,
                heads=self.heads,
                mask=context.memory_mask,
                causal=False,
                dropout=dropout,
            )
        memory = state if isinstance(state, MemoryKeyValues) else self.start(context)
        sentences = memory.keys.shape[0]
        q = split_heads(self.query(x).reshape(sentences, -1, x.shape[-1]), self.heads)
        attended = attend(
            q,
            memory.keys,
            memory.values,
            mask=memory.mask,
            causal=False,
            dropout=dropout,
        )
        return join_heads(attended).reshape(x.shape)


def _memory(context: Context) -> Tensor:
    if context.memory is None:
        raise ValueError("cross-attention needs a memory in its context")
    return context.memory
