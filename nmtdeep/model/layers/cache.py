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
        for part in self.parts:
            if part is not None:
                part.select(rows, sentences)


class RowState:
    """A tensor `(sentences, hypotheses, width)` that a layer hands from step to step.

    Attributes:
        value: of the newest position; None before the first.
    """

    def __init__(self) -> None:
        self.value: Tensor | None = None

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        if self.value is not None:
            count = self.value.shape[0] if sentences is None else len(sentences)
            self.value = self.value.flatten(0, 1)[rows].view(count, -1, self.value.shape[2])


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
    """

    def __init__(self, like: Tensor) -> None:
        self.sentences = like.shape[0]
        self.bias: Tensor | None = None
        self._zero = kernels.full_precision(like.new_zeros(()))
        self._own = self._zero  # what the newest hypotheses read of their own entries
        self._buffer = self._zero  # for `bias`, which grows in it
        self._adds: list[int] = []  # 1 or more at first, then always the same
        self._offsets: Tensor | None = None

    def add(self, hypotheses: int) -> None:
        """Add an entry for each of a sentence's hypotheses, which alone reads it."""
        before = sum(self._adds)
        self._adds.append(hypotheses)
        self._offsets = None
        if hypotheses == 1 and self.bias is None:
            return
        entries = before + hypotheses
        if self.bias is None:
            self._own = self._zero.new_full((hypotheses, hypotheses), -math.inf).fill_diagonal_(0)
            self._buffer = self._zero.new_zeros(self.sentences, 1, hypotheses, _capacity(entries))
        elif self._buffer.shape[3] < entries:
            self._buffer = F.pad(self._buffer, (0, _capacity(entries) - self._buffer.shape[3]))
        self._buffer[..., before:entries] = self._own
        self.bias = self._buffer[..., :entries]

    def position(self) -> Tensor:
        """`(1,)`, the position of the newest entries, from 0."""
        return torch.full((1,), len(self._adds) - 1, device=self._zero.device)

    def offsets(self) -> Tensor:
        """`(entries,)`, position of each entry relative to the newest one: ..., -1, 0."""
        if self._offsets is None:
            first, newest = self._adds[0], self._adds[-1]
            places = torch.arange(-first, sum(self._adds) - first, device=self._zero.device)
            self._offsets = places.div_(newest, rounding_mode="floor").add_(2 - len(self._adds))
        return self._offsets

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        if sentences is not None:
            self.sentences = len(sentences)
        if self.bias is not None:
            entries, width = self.bias.shape[3], self._buffer.shape[3]
            self._buffer = self._buffer.view(-1, width)[rows].view(self.sentences, 1, -1, width)
            self.bias = self._buffer[..., :entries]


class KeyValues:
    """Keys and values of all entries, `(sentences, heads, entries, d_h)`, in growing buffers.

    Args:
        index: which entries each hypothesis descends from; the decoder keeps it up to date.
    """

    def __init__(self, index: CacheIndex) -> None:
        self.index = index
        self._buffer: Tensor | None = None  # (2, sentences, heads, capacity, d_h)
        self._entries = 0

    def append(self, newest: Tensor) -> tuple[Tensor, Tensor]:
        """Add the newest entries, one for each hypothesis, and return all keys and values.

        Args:
            newest: `(2, sentences, heads, hypotheses, d_h)`, keys and values.
        """
        before, self._entries = self._entries, self._entries + newest.shape[3]
        if self._buffer is None:
            self._buffer = kernels.full_precision(newest[:, :, :, :0]).contiguous()
        if (room := self._buffer.shape[3]) < self._entries:
            self._buffer = F.pad(self._buffer, (0, 0, 0, _capacity(self._entries) - room))
        self._buffer[:, :, :, before : self._entries] = newest
        keys, values = self._buffer[:, :, :, : self._entries]
        return keys, values

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Keep `sentences`; the index has the hypotheses."""
        if sentences is not None and self._buffer is not None:
            kept = kernels.keep_rows(self._buffer.transpose(0, 1), sentences)
            self._buffer = kept.transpose(0, 1)


def _capacity(entries: int) -> int:
    """Entries of a buffer that grows: twice as many, in whole blocks of 64.

    A GPU's attention copies a bias first if its rows do not start at multiples of 8 numbers.
    """
    return max(64, -(-entries // 32) * 64)


class MemoryKeyValues:
    """Keys and values of the encoder's output: once per sentence, shared by its hypotheses.

    Args:
        keys: `(sentences, heads, source, d_h)`; so are the values.
        mask: `(sentences, 1, 1, source)`, True at real tokens.
    """

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> None:
        if mask is None:
            mask = keys.new_ones((len(keys), 1, 1, keys.shape[2]), dtype=torch.bool)
        source = keys.shape[2]
        # For a GPU whole blocks of 8, as in `_capacity`.
        missing = max(0, VECTOR - source) if keys.device.type == "cpu" else -source % 8
        # Contiguous, because otherwise every step copies them for its matrix products.
        self.keys = F.pad(kernels.full_precision(keys), (0, 0, 0, missing)).contiguous()
        self.values = F.pad(kernels.full_precision(values), (0, 0, 0, missing)).contiguous()
        self.bias = self.keys.new_zeros(()).where(F.pad(mask, (0, missing)), -math.inf)

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        if sentences is not None:
            self.keys = kernels.keep_rows(self.keys, sentences)
            self.values = kernels.keep_rows(self.values, sentences)
            self.bias = self.bias[sentences]
