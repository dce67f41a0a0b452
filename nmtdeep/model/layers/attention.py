"""Multi-head attention (Vaswani et al. 2017, section 3.2) over a stack itself or a memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from nmtdeep.model import kernels
from nmtdeep.model.kernels.plain_attention import (
    Mask,
    RelativeVectors,
    attention_bias,
    attention_weights,
    join_heads,
    split_heads,
)
from nmtdeep.model.layers.cache import CacheIndex, KeyValues, MemoryKeyValues
from nmtdeep.model.layers.initial_values import InitMatrix, matrix, projections
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.norm import HeadNorm
from nmtdeep.model.layers.positions import RelativePositions, Rotary
from nmtdeep.model.layers.sublayer import Context, State, Sublayer
from nmtdeep.packing import Packing


class SelfAttention(Sublayer):
    """Attention of a stack over itself, `(sentences, positions, width)` to the same.

    Args:
        width: model width d.
        heads: number of heads; divides the width.
        dropout: probability on the attention weights.
        causal: True lets a position see itself and the positions before it only.
        bias: whether the projections have a bias.
        relative: relative positions of this sublayer, or None.
        norms: one of queries and one of keys, or none.
        rotary: rotation of queries and keys by their positions, or None.
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
        norms: Sequence[HeadNorm] = (),
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.causal = causal
        self.qkv = Linear(width, 3 * width, bias=bias)
        self.output = Linear(width, width, bias=bias)
        self.relative = relative
        self.norms = nn.ModuleList(norms)
        self.rotary = rotary

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield from projections(self.qkv.weight, ("query", "key", "value"))
        yield matrix(self.output, "output")
        if self.relative is not None:
            yield from self.relative.init_matrices()

    def start(self, context: Context) -> KeyValues:
        assert context.index is not None
        return KeyValues(context.index)

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Attend from every position of `x`; with a state, from the newest to all so far."""
        if isinstance(state, KeyValues):
            return self._step(x, state)
        packing = context.packing
        relative = self._vectors(packing.longest if packing else x.shape[1], x.device)
        attended = kernels.attention(
            self._projected(x, packing),
            heads=self.heads,
            mask=Mask(context.mask, self.causal, relative, packing),
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.output(attended)

    def weights(self, x: Tensor, context: Context) -> Tensor:
        """The weights of `forward` without dropout, `(sentences, heads, queries, keys)`."""
        q, k, _ = (split_heads(part, self.heads) for part in self._projected(x).chunk(3, dim=2))
        bias = attention_bias(x.shape[1], Mask(context.mask, self.causal), x.dtype, x.device)
        return attention_weights(q, k, bias=bias, relative=self._vectors(x.shape[1], x.device))

    def _vectors(self, length: int, device: torch.device) -> RelativeVectors | None:
        if self.relative is None:
            return None
        positions = torch.arange(length, device=device)
        return self.relative.at(positions - positions[:, None])

    def _projected(
        self, x: Tensor, packing: Packing | None = None, index: CacheIndex | None = None
    ) -> Tensor:
        """Queries and keys, normalized and rotated, and values, `(sentences, positions, 3 width)`.

        Args:
            packing: the sentences of `x`, if they are packed.
            index: the cache's, if `x` is the newest position.
        """
        qkv = self.qkv(x)
        if not self.norms and self.rotary is None:
            return qkv
        q, k, v = qkv.chunk(3, dim=2)
        if self.norms:
            q, k = self.norms[0](q), self.norms[1](k)
        if self.rotary is not None:
            if index is not None:
                positions = index.position()
            elif packing is not None:
                positions = packing.positions
            else:
                positions = torch.arange(x.shape[1], device=x.device)
            q, k = self.rotary(q, positions), self.rotary(k, positions)
        return torch.cat((q, k, v), dim=2)

    def _step(self, x: Tensor, state: KeyValues) -> Tensor:
        """The newest position of each hypothesis reads the entries that it descends from."""
        index = state.index
        qkv = self._projected(x, index=index)
        split = qkv.view(*qkv.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        keys, values = state.append(split[1:])
        relative = None if self.relative is None else self.relative.at(index.offsets())
        attended = kernels.attention_step(
            split[0], keys, values, bias=index.bias, relative=relative
        )
        return self.output(join_heads(attended))


class CrossAttention(Sublayer):
    """Attention of the decoder over the encoder's output; see `SelfAttention`.

    Keys and values are projected from the memory's width (None: d) to the decoder's, as in the
    release of Wang et al. 2019.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        memory: int | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        norms: Sequence[HeadNorm] = (),
    ) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = Linear(width, width, bias=bias)
        self.key_value = Linear(memory or width, 2 * width, bias=bias)
        self.output = Linear(width, width, bias=bias)
        self.norms = nn.ModuleList(norms)

    def init_matrices(self) -> Iterator[InitMatrix]:
        yield from projections(self.query.weight, ("query",), across=True)
        yield from projections(self.key_value.weight, ("key", "value"), across=True)
        yield matrix(self.output, "output")

    def start(self, context: Context) -> MemoryKeyValues:
        k, v = self._key_value(context.memory).chunk(2, dim=2)
        return MemoryKeyValues(
            split_heads(k, self.heads), split_heads(v, self.heads), context.memory_mask
        )

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """Attend from every position of `x` to the memory; with a state, from the newest."""
        return self.output(self.attended(x, context, state))

    def attended(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        """The result of `forward` before the output projection."""
        if isinstance(state, MemoryKeyValues):
            q = split_heads(self._query(x), self.heads)
            read = kernels.attention_step(q, state.keys, state.values, bias=state.bias)
            return join_heads(read)
        return kernels.attention(
            self._query(x),
            self._key_value(context.memory),
            heads=self.heads,
            mask=Mask(context.memory_mask, queries=context.packing, keys=context.memory_packing),
            dropout_p=self.dropout if self.training else 0.0,
        )

    def weights(self, x: Tensor, context: Context) -> Tensor:
        """The weights of `forward` without dropout, `(sentences, heads, queries, source)`."""
        k = self._key_value(context.memory).chunk(2, dim=2)[0]
        q, k = split_heads(self._query(x), self.heads), split_heads(k, self.heads)
        bias = attention_bias(x.shape[1], Mask(context.memory_mask), x.dtype, x.device)
        return attention_weights(q, k, bias=bias)

    def _query(self, x: Tensor) -> Tensor:
        q: Tensor = self.query(x)
        return self.norms[0](q) if self.norms else q

    def _key_value(self, memory: Tensor | None) -> Tensor:
        """Keys, normalized, and values of the memory, `(sentences, source, 2 width)`."""
        kv: Tensor = self.key_value(memory)
        if not self.norms:
            return kv
        k, v = kv.chunk(2, dim=2)
        return torch.cat((self.norms[1](k), v), dim=2)
