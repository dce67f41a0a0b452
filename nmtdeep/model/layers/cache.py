"""Caches of layers between decoding steps, and the hypotheses that their entries belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nmtdeep.model import kernels
from nmtdeep.model.kernels.cpu_attention import VECTOR


class State(Protocol):
    """A sublayer's own tensors in incremental decoding."""

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep hypotheses `rows`; `sentences` are those that stay, None if all do.

        Both count from 0 in the order before. A hypothesis continues one of its own sentence; more
        than one may continue the same; every sentence must have as many.
        """


class States:
    """States that take one step together; None for a sublayer that needs no state."""

    def __init__(self, parts: Sequence[State | None]) -> None:
        self.parts = parts

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Select in each."""
        for part in self.parts:
            if part is not None:
                part.select(rows, sentences)


class CacheIndex:
    """The entries of self-attention's caches, and which hypotheses descend from each.

    A step adds one entry for each hypothesis of a sentence, and entries never move: a search that
    reorders hypotheses reorders rows of `bias`, which all layers share, and not the keys and values
    of every layer. A hypothesis puts exactly zero weight on entries that it does not descend from.

    Args:
        like: a tensor of the model's dtype and device; its first dimension counts sentences.

    Attributes:
        sentences: number of sentences.
        bias: `(sentences, 1, hypotheses, entries)`, 0 where a hypothesis reads an entry and -inf
            elsewhere; None while no sentence has more than one hypothesis, which reads all.
        offsets: `(entries,)`, position of each entry relative to the newest one: ..., -1, 0.
    """

    def __init__(self, like: Tensor) -> None:
        self.sentences = like.shape[0]
        self._zero = kernels.full_precision(like.new_zeros(()))
        self.bias: Tensor | None = None
        self.offsets = torch.empty(0, dtype=torch.int64, device=like.device)

    def add(self, hypotheses: int) -> None:
        """Add an entry for each of a sentence's hypotheses, which alone reads it."""
        before = self.offsets.shape[0]
        newest = torch.zeros(hypotheses, dtype=torch.int64, device=self.offsets.device)
        self.offsets = torch.cat((self.offsets - 1, newest))
        if hypotheses == 1 and self.bias is None:
            return
        shape = (self.sentences, 1, hypotheses)
        if self.bias is None:
            self.bias = self._zero.expand(*shape, before)
        own = self._zero.new_full((hypotheses, hypotheses), -math.inf).fill_diagonal_(0)
        self.bias = torch.cat((self.bias, own.expand(*shape, hypotheses)), dim=3)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep hypotheses `rows`; see `State`."""
        if sentences is not None:
            self.sentences = len(sentences)
        if self.bias is not None:
            chosen = self.bias.flatten(0, 2)[rows]
            self.bias = chosen.view(self.sentences, 1, -1, chosen.shape[1])


class KeyValues:
    """Keys and values of all entries, `(sentences, heads, entries, d_h)`, in growing buffers.

    Args:
        index: which entries each hypothesis descends from; the decoder keeps it up to date.
    """

    def __init__(self, index: CacheIndex) -> None:
        self.index = index
        self._keys: Tensor | None = None
        self._values: Tensor | None = None
        self._entries = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest entries, one for each hypothesis, and return all."""
        first, self._entries = self._entries, self._entries + keys.shape[2]
        self._keys = _grown(self._keys, keys, self._entries)
        self._values = _grown(self._values, values, self._entries)
        self._keys[:, :, first : self._entries] = keys
        self._values[:, :, first : self._entries] = values
        return self._keys[:, :, : self._entries], self._values[:, :, : self._entries]

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep `sentences`; the index has the hypotheses."""
        if sentences is not None and self._keys is not None and self._values is not None:
            self._keys = kernels.keep_rows(self._keys, sentences)
            self._values = kernels.keep_rows(self._values, sentences)


def _grown(buffer: Tensor | None, newest: Tensor, entries: int) -> Tensor:
    """`buffer`, or a copy with twice the size, for `entries` like those of `newest`."""
    if buffer is not None and buffer.shape[2] >= entries:
        return buffer
    sentences, heads, _, width = newest.shape
    like = kernels.full_precision(newest.new_empty(0))
    larger = like.new_empty(sentences, heads, max(64, 2 * entries), width)
    if buffer is not None:
        larger[:, :, : buffer.shape[2]] = buffer
    return larger


class MemoryKeyValues:
    """Keys and values of the encoder's output: once per sentence, shared by its hypotheses.

    Args:
        keys: `(sentences, heads, source, d_h)`; so are the values.
        mask: `(sentences, 1, 1, source)`, True at real tokens.
    """

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> None:
        if mask is None:
            mask = keys.new_ones((len(keys), 1, 1, keys.shape[2]), dtype=torch.bool)
        missing = max(0, VECTOR - keys.shape[2])
        # Contiguous, because otherwise every step copies them for its matrix products.
        self.keys = F.pad(kernels.full_precision(keys), (0, 0, 0, missing)).contiguous()
        self.values = F.pad(kernels.full_precision(values), (0, 0, 0, missing)).contiguous()
        self.bias = self.keys.new_zeros(()).where(F.pad(mask, (0, missing)), -math.inf)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep `sentences`."""
        if sentences is not None:
            self.keys = kernels.keep_rows(self.keys, sentences)
            self.values = kernels.keep_rows(self.values, sentences)
            self.bias = self.bias[sentences]
