"""Batches: sentence pairs as tensors, padded or packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmtdeep.data.batching import Indices
from nmtdeep.data.capacity import Capacity
from nmtdeep.data.corpus import Ids, ParallelCorpus
from nmtdeep.packing import Packing, to_device
from nmtdeep.text.vocabulary import EOS, PAD


@dataclass(frozen=True)
class Batch:
    """Sentences that go through the model together.

    Attributes:
        source: `(sentences, source)` ids, each ending in EOS, padded at the end. Packed, ids
            `(1, tokens)` of one sentence after the other; so are the next two.
        target_input: `(sentences, target)` ids, EOS first (the decoder's start).
        target_output: `(sentences, target)` ids, EOS last: the reference.
        target_tokens: number of real tokens of `target_output`.
        padded_tokens: cells of both sides, padding included.
        real_tokens: real tokens of both sides.
        indices: `(sentences,)` numbers in the corpus, from 0; empty if they are from elsewhere.
        packing: the sentences of source and target, if these are packed.
        capacity: what the batch is filled up to, by sentences of padding and empty ones; or None.
        corpus: name of the split, for messages.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    indices: Indices = field(default_factory=lambda: np.empty(0, np.int64))
    packing: tuple[Packing, Packing] | None = None
    capacity: Capacity | None = None
    corpus: str = ""

    @property
    def sentences(self) -> int:
        """Number of sentence pairs, without those that fill up a capacity."""
        if self.capacity:
            return len(self.indices)
        return self.packing[0].sentences if self.packing else len(self.source)

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and target sentence."""
        if self.packing:
            return self.packing[0].longest, self.packing[1].longest
        return self.source.shape[1], self.target_output.shape[1]

    @property
    def cells(self) -> int:
        """Tokens of the longer side, padding included."""
        return max(self.source.numel(), self.target_output.numel())

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, for `with_tensors`."""
        packings = [each for side in self.packing or () for each in (side.offsets, side.places)]
        return [self.source, self.target_input, self.target_output, *packings]

    def with_tensors(self, tensors: Sequence[Tensor]) -> Batch:
        """The same batch of other tensors, of the shapes and in the order of `tensors`."""
        source, target_input, target_output, *rest = tensors
        packing = None
        if self.packing:
            upper, lower = self.packing
            packing = (
                upper._replace(offsets=rest[0], places=rest[1]),
                lower._replace(offsets=rest[2], places=rest[3]),
            )
        return replace(
            self,
            source=source,
            target_input=target_input,
            target_output=target_output,
            packing=packing,
        )

    def to(self, device: torch.device) -> Batch:
        """The same batch on `device`."""
        if device.type == "cpu":
            return self
        return self.with_tensors([to_device(tensor, device) for tensor in self.tensors])

    @classmethod
    def of(
        cls, source: Tensor, target_input: Tensor, target_output: Tensor, indices: Indices
    ) -> Batch:
        """A batch of these ids, which are counted."""
        target_tokens = int((target_output != PAD).sum())
        real_tokens = target_tokens + int((source != PAD).sum())
        padded_tokens = source.numel() + target_output.numel()
        counts = (target_tokens, padded_tokens, real_tokens)
        return cls(source, target_input, target_output, *counts, indices)

    def twice(self) -> Batch:
        """The padded sentences, and all of them again; the counts are those of one time."""
        ids = (self.source, self.target_input, self.target_output)
        source, target_input, target_output = (torch.cat((each, each)) for each in ids)
        return replace(self, source=source, target_input=target_input, target_output=target_output)

    def part(self, first: int, last: int) -> Batch:
        """Sentences `first` to `last`, the latter excluded, with the padding of this batch."""
        last = min(last, self.sentences)
        ids, packing = (self.source, self.target_input, self.target_output), None
        parts = [part[first:last] for part in ids]
        if self.packing:
            upper, lower = self.packing
            spans = [slice(*side.offsets[[first, last]].tolist()) for side in (upper, lower, lower)]
            parts = [part[:, span] for part, span in zip(ids, spans, strict=True)]
            packing = upper.part(first, last), lower.part(first, last)
        source, target_input, target_output = parts
        batch = Batch.of(source, target_input, target_output, self.indices[first:last])
        return replace(batch, packing=packing, corpus=self.corpus)


@dataclass(frozen=True)
class RankBatches:
    """The part of an update that one rank computes.

    Attributes:
        batches: each with its number within the update.
        target_tokens: of the whole update, over all processes; so are the next two.
        padded_tokens: cells of its batches, both sides.
        real_tokens: of both sides.
    """

    batches: list[tuple[int, Batch]]
    target_tokens: int
    padded_tokens: int
    real_tokens: int

    @property
    def longest(self) -> tuple[int, int]:
        """Tokens of the longest source and target sentence of its batches, 0 without any."""
        pairs = [batch.longest for _, batch in self.batches]
        return max((pair[0] for pair in pairs), default=0), max((p[1] for p in pairs), default=0)

    @classmethod
    def single(cls, batches: Sequence[Batch]) -> RankBatches:
        """All batches of an update, for a single rank."""
        return cls(
            list(enumerate(batches)),
            sum(batch.target_tokens for batch in batches),
            sum(batch.padded_tokens for batch in batches),
            sum(batch.real_tokens for batch in batches),
        )


def pad_batch(sentences: Sequence[Sequence[int] | Ids]) -> Tensor:
    """Stack id sequences into `(sentences, longest)`, filled with PAD at the end."""
    lengths = np.array([len(sentence) for sentence in sentences])
    return torch.from_numpy(_padded(np.concatenate(sentences), lengths))


def _padded(flat: NDArray[np.integer[Any]], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    real = np.arange(lengths.max()) < lengths[:, None]
    ids = np.full(real.shape, PAD, np.int64)
    ids[real] = flat
    return ids


def read_batch(
    corpus: ParallelCorpus,
    indices: Indices,
    *,
    packed: bool = False,
    capacity: Capacity | None = None,
) -> Batch:
    """Read the named sentence pairs, and pad or pack them.

    Args:
        capacity: that a packed batch is filled up to; it must hold the batch.
    """
    if packed:
        batch = _pack(corpus, indices, capacity)
    else:
        source, output = (_padded(*side.read(indices)) for side in (corpus.source, corpus.target))
        shifted = np.roll(output, 1, axis=1)
        shifted[:, 0] = EOS
        shifted[output == PAD] = PAD
        ids = (torch.from_numpy(source), torch.from_numpy(shifted), torch.from_numpy(output))
        batch = Batch.of(*ids, indices)
    return replace(batch, corpus=corpus.source.stem.stem)


def _pack(corpus: ParallelCorpus, indices: Indices, capacity: Capacity | None) -> Batch:
    sides, each = (corpus.source, corpus.target), []
    ids, lengths = zip(*(side.read(indices) for side in sides), strict=True)
    fillers = capacity.fillers(np.stack(lengths)) if capacity else None
    for number in range(2):
        of, more = lengths[number], {}
        if capacity:
            assert fillers is not None, "the capacity does not hold the batch"
            of = np.concatenate((of, fillers[number]))
            more = {"sentences": capacity.sentences, "longest": capacity.longest[number]}
        each.append(Packing.of(of, **more))
    source, output = (
        np.concatenate((side, np.full(len(packing.places) - len(side), PAD)))
        for side, packing in zip(ids, each, strict=True)
    )
    shifted = np.roll(output, 1)
    shifted[each[1].offsets[: len(indices)].numpy()] = EOS
    shifted[len(ids[1]) :] = PAD
    tensors = [torch.from_numpy(side)[None] for side in (source, shifted, output)]
    batch = Batch.of(tensors[0], tensors[1], tensors[2], indices)
    return replace(batch, packing=(each[0], each[1]), capacity=capacity)
