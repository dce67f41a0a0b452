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
from nmtdeep.model.layers.slots import Slots, exact, keep


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
        weights = attention_weights(q, k, mask=mask, causal=causal, relative=relative)
        weights = drop(weights, dropout, training=dropout > 0)
        read = weights @ v if relative is None else relative.read(weights, v)
        return read.to(dtype)


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    mask: Tensor | None,
    causal: bool,
    relative: RelativePositions | None = None,
) -> Tensor:
    """softmax(q k^T / sqrt(d_h)), `(sentences, heads, queries, keys)`; see `attend`."""
    q = q * q.shape[-1] ** -0.5
    scores = q @ k.transpose(2, 3)
    if relative is not None:
        scores = scores + relative.scores(q, k.shape[2])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    if causal:
        scores = scores + _causal(q.shape[2], q.dtype, q.device)
    return scores.softmax(dim=3)


def read(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    bias: Tensor | None,
    relative: tuple[Tensor, Tensor | None] | None = None,
) -> Tensor:
    """`attend` for one step: the queries `(sentences, heads, hypotheses, d_h)` read all slots.

    Args:
        bias: 0 or -inf, broadcasts to `(sentences, heads, hypotheses, slots)`.
        relative: what `RelativePositions.of_slots` gives.
    """
    if q.device.type != "cpu" and relative is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    dtype = q.dtype
    q = exact(q) * q.shape[-1] ** -0.5
    scores = q @ k.transpose(2, 3)
    if relative is not None:
        scores += q @ exact(relative[0]).T
    if bias is not None:
        scores += bias
    weights = scores.softmax(dim=3)
    found = weights @ v
    if relative is not None and relative[1] is not None:
        found += weights @ exact(relative[1])
    return found.to(dtype)


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
    """Keys and values in all slots so far, `(sentences, heads, slots, d_h)`, in growing buffers.

    Args:
        slots: which of them each hypothesis grew from; the decoder keeps it up to date.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._slots = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest slots, one for each hypothesis, and return all."""
        first, self._slots = self._slots, self._slots + keys.shape[2]
        self._keys = _room(self._keys, keys, self._slots)
        self._values = _room(self._values, values, self._slots)
        self._keys[:, :, first : self._slots] = keys
        self._values[:, :, first : self._slots] = values
        return self._keys[:, :, : self._slots], self._values[:, :, : self._slots]

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep `sentences`; `Slots` knows what the hypotheses are."""
        if sentences is not None and self._keys is not None and self._values is not None:
            self._keys = keep(self._keys, sentences)
            self._values = keep(self._values, sentences)


def _room(buffer: Tensor | None, newest: Tensor, slots: int) -> Tensor:
    """`buffer`, or a copy with twice the room, for `slots` like those of `newest`."""
    if buffer is not None and buffer.shape[2] >= slots:
        return buffer
    sentences, heads, _, width = newest.shape
    grown = exact(newest.new_empty(0)).new_empty(sentences, heads, max(64, 2 * slots), width)
    if buffer is not None:
        grown[:, :, : buffer.shape[2]] = buffer
    return grown


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
        if context.slots is None:
            raise ValueError("self-attention step by step needs slots in its context")
        return KeyValues(context.slots)

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
            return self._step(q, *state.append(k, v), state.slots)
        attended = attend(
            q,
            k,
            v,
            mask=context.mask,
            causal=self.causal,
            dropout=dropout,
            relative=self.relative,
        )
        return self.output(join_heads(attended))  # type: ignore[no-any-return]

    def _step(self, q: Tensor, keys: Tensor, values: Tensor, slots: Slots) -> Tensor:
        """The newest position of each hypothesis reads those that it grew from."""
        relative = None if self.relative is None else self.relative.of_slots(slots.offsets)
        attended = read(q, keys, values, bias=slots.bias, relative=relative)
        return self.output(join_heads(attended))  # type: ignore[no-any-return]


class MemoryKeyValues:
    """Keys and values of the encoder's output: once per sentence, shared by its hypotheses.

    Args:
        keys: `(sentences, heads, source, d_h)`; so are the values.
        mask: `(sentences, 1, 1, source)`, True at real tokens.
    """

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> None:
        if mask is None:
            mask = keys.new_ones((len(keys), 1, 1, keys.shape[2]), dtype=torch.bool)
        missing = max(0, cpu_attention.VECTOR - keys.shape[2])
        # In one piece, or every step would copy them for its matrix products.
        self.keys = F.pad(exact(keys), (0, 0, 0, missing)).contiguous()
        self.values = F.pad(exact(values), (0, 0, 0, missing)).contiguous()
        self.bias = self.keys.new_zeros(()).where(F.pad(mask, (0, missing)), -math.inf)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep `sentences`."""
        if sentences is not None:
            self.keys, self.values = keep(self.keys, sentences), keep(self.values, sentences)
            self.bias = self.bias[sentences]


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
        return MemoryKeyValues(*self.project(context), context.memory_mask)

    def project(self, context: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of the memory, `(sentences, heads, source, d_h)` each."""
        k, v = self.key_value(_memory(context)).chunk(2, dim=-1)
        return split_heads(k, self.heads), split_heads(v, self.heads)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Attend from every position of `x` to the memory; with a state, from the newest."""
        return self.output(self.attended(x, context, state))  # type: ignore[no-any-return]

    def attended(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """What `forward` computes, before the output projection."""
        if isinstance(state, MemoryKeyValues):
            q = split_heads(self.query(x), self.heads)
            return join_heads(read(q, state.keys, state.values, bias=state.bias))
        dropout = self.dropout if self.training else 0.0
        if x.device.type == "cpu":
            key_value = self.key_value(_memory(context))
            return cpu_attention.attention(
                self.query(x),
                key_value,
                heads=self.heads,
                mask=context.memory_mask,
                causal=False,
                dropout=dropout,
            )
        k, v = self.project(context)
        attended = attend(
            split_heads(self.query(x), self.heads),
            k,
            v,
            mask=context.memory_mask,
            causal=False,
            dropout=dropout,
        )
        return join_heads(attended)


def _memory(context: Context) -> Tensor:
    if context.memory is None:
        raise ValueError("cross-attention needs a memory in its context")
    return context.memory
