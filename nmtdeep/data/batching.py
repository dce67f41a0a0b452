"""From sentence lengths to the updates of an epoch, by token budgets.

An *update* is one optimizer step: a list of *groups* of sentences of similar length. Which
sentences form an update depends on the recipe, the seed and the epoch only. How many of a group a
device takes at once (`max_tokens`) splits groups into batches and changes no update.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from nmtdeep.data.corpus import Longest, MonolingualCorpus, ParallelCorpus
from nmtdeep.errors import UserError
from nmtdeep.text.vocabulary import EOS, PAD

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Sentences that go through the model together.

    Attributes:
        source: `(sentences, source)` ids, each ending in EOS, padded at the end.
        target_input: `(sentences, target)` ids, EOS first (the decoder's start).
        target_output: `(sentences, target)` ids, EOS last: the reference.
        target_tokens: number of real tokens of `target_output`.
        padded_tokens: cells of both sides, padding included.
        real_tokens: real tokens of both sides.
        indices: `(sentences,)` numbers in the corpus, from 0; empty if they are from elsewhere.
    """

    source: torch.Tensor
    target_input: torch.Tensor
    target_output: torch.Tensor
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    indices: Indices = field(default_factory=lambda: np.empty(0, np.int64))

    def to(self, device: torch.device) -> Batch:
        """The same batch on `device`."""
        if device.type == "cpu":
            return self
        source, target_input, target_output = (
            part.pin_memory().to(device, non_blocking=True)
            for part in (self.source, self.target_input, self.target_output)
        )
        return replace(self, source=source, target_input=target_input, target_output=target_output)

    @classmethod
    def of(
        cls,
        source: torch.Tensor,
        target_input: torch.Tensor,
        target_output: torch.Tensor,
        indices: Indices,
    ) -> Batch:
        """A batch of these ids, which are counted."""
        target_tokens = int((target_output != PAD).sum())
        real_tokens = target_tokens + int((source != PAD).sum())
        padded_tokens = source.numel() + target_output.numel()
        counts = (target_tokens, padded_tokens, real_tokens)
        return cls(source, target_input, target_output, *counts, indices)

    def rows(self, first: int, last: int) -> Batch:
        """Sentences `first` to `last`, the latter excluded, with the padding of this batch."""
        ids = (self.source, self.target_input, self.target_output)
        source, target_input, target_output = (part[first:last] for part in ids)
        return Batch.of(source, target_input, target_output, self.indices[first:last])


@dataclass(frozen=True)
class Share:
    """The part of an update that one rank computes.

    Attributes:
        batches: each with its number within the update.
        target_tokens: of the whole update, over all processes; so are the next two.
        padded_tokens: cells of its batches, both sides.
        real_tokens: of both sides.
        passes: the largest number of batches of a rank.
    """

    batches: list[tuple[int, Batch]]
    target_tokens: int
    padded_tokens: int
    real_tokens: int
    passes: int

    @classmethod
    def whole(cls, batches: Sequence[Batch]) -> Share:
        """All batches of an update, for a single rank."""
        return cls(
            list(enumerate(batches)),
            sum(batch.target_tokens for batch in batches),
            sum(batch.padded_tokens for batch in batches),
            sum(batch.real_tokens for batch in batches),
            len(batches),
        )


def sort_by_length(lengths: NDArray[np.int32], order: Indices | None = None) -> Indices:
    """Sentence numbers sorted by the last side's lengths, then by those before it.

    Args:
        lengths: `(sides, sentences)`.
        order: permutation that decides ties; None keeps the corpus order.
    """
    order = np.arange(lengths.shape[1]) if order is None else order
    return order[np.lexsort(lengths[:, order])]


def cut(lengths: NDArray[np.int32], order: Indices, budget: int) -> list[Indices]:
    """Cut `order` into runs whose count times longest length stays within `budget` tokens.

    `lengths` counts the longer side of each sentence. A sentence longer than the budget gets a run
    of its own.
    """
    ordered = lengths[order]
    runs, first = [], 0
    while first < len(order):
        most = max(budget // max(int(ordered[first]), 1), 1)
        longest = np.maximum.accumulate(ordered[first : first + most])
        sizes = longest * np.arange(1, len(longest) + 1)
        last = first + max(int(np.searchsorted(sizes, budget, side="right")), 1)
        runs.append(order[first:last])
        first = last
    return runs


def updates(
    lengths: NDArray[np.int32],
    *,
    group_tokens: int,
    tokens_per_update: int,
    seed: int,
    epoch: int,
    window: int = 0,
) -> list[list[Indices]]:
    """The updates of one window: every sentence once, in an order fixed by seed, epoch and window.

    Args:
        lengths: `(2, sentences)` source and target lengths, end of sentence included.
        group_tokens: padded tokens (sentences times longer side) of one group, at most.
        tokens_per_update: padded tokens of one update, at most; at least one group.
        seed: of the training.
        epoch: counted from 0.
        window: of the epoch, counted from 0.
    """
    random = np.random.default_rng((seed, epoch, window))
    longer = lengths.max(axis=0)
    order = sort_by_length(lengths, random.permutation(lengths.shape[1]))
    groups = cut(longer, order, min(group_tokens, tokens_per_update))
    plan: list[list[Indices]] = []
    room = 0
    for number in random.permutation(len(groups)).tolist():
        group = groups[number]
        size = len(group) * int(longer[group].max())
        if not plan or size > room:
            plan.append([])
            room = tokens_per_update
        plan[-1].append(group)
        room -= size
    return plan


def split(lengths: NDArray[np.int32], groups: list[Indices], max_tokens: int) -> Iterator[Indices]:
    """Divide an update's groups into batches that fit on a device, as evenly as possible.

    A group is divided into as few batches as the budget allows, then with the smallest budget that
    keeps their number.
    """
    longer = lengths.max(axis=0)
    for group in groups:
        batches = cut(longer, group, max_tokens)
        fewest = len(batches)
        low, high = max_tokens // 2, max_tokens
        while fewest > 1 and high - low > max(max_tokens // 32, 1):
            budget = (low + high) // 2
            tighter = cut(longer, group, budget)
            if len(tighter) > fewest:
                low = budget
            else:
                batches, high = tighter, budget
        yield from batches


def deal(sizes: Sequence[int], processes: int) -> list[int]:
    """The rank of each batch: the largest batch first, each for the rank with the least work."""
    loads = [0] * processes
    owners = [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        owner = loads.index(min(loads))
        owners[number] = owner
        loads[owner] += sizes[number]
    return owners


def check_budget(longest: Longest, *, max_tokens: int) -> None:
    """Check that no sentence is longer than a batch may be.

    Raises:
        UserError: naming the sentence.
    """
    if longest.tokens > max_tokens:
        raise UserError(
            f"training sentence {longest.sentence} has {longest.tokens} tokens, more than "
            f"max_tokens {max_tokens}",
            hint="raise --max-tokens, or lower text.clean.max_length and preprocess again",
        )


def pad(sentences: list[NDArray[np.int64]]) -> torch.Tensor:
    """Stack id sequences into `(sentences, longest)`, filled with PAD at the end."""
    out = np.full((len(sentences), max(map(len, sentences))), PAD, dtype=np.int64)
    for row, sentence in zip(out, sentences, strict=True):
        row[: len(sentence)] = sentence
    return torch.from_numpy(out)


def gather(corpus: MonolingualCorpus, indices: Indices) -> NDArray[np.int64]:
    """Ids `(sentences, longest)` of the named sentences, PAD behind them."""
    starts, lengths = corpus.places(indices)
    columns = np.arange(lengths.max())
    real = columns < lengths[:, None]
    ids = np.full(real.shape, PAD, np.int64)
    ids[real] = corpus.ids((starts[:, None] + columns)[real])
    return ids


def collate(corpus: ParallelCorpus, indices: Indices) -> Batch:
    """Read the named sentence pairs and pad them."""
    source, output = gather(corpus.source, indices), gather(corpus.target, indices)
    shifted = np.roll(output, 1, axis=1)
    shifted[:, 0] = EOS
    shifted[output == PAD] = PAD
    tensors = (torch.from_numpy(source), torch.from_numpy(shifted), torch.from_numpy(output))
    return Batch.of(*tensors, indices)
