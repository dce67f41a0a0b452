"""An epoch in windows, so that planning takes the same memory and time for a corpus of any size.

A window holds about a million sentences: contiguous blocks of the corpus, drawn by seed and epoch.
Its sentences are sorted, grouped and shuffled among themselves when its turn comes. So it reads
contiguous parts of the disk, and never sorts more than a window. A corpus that fits
into one window is planned as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from nmtdeep.config.training import Batches
from nmtdeep.data.batch import Indices
from nmtdeep.data.batching import updates
from nmtdeep.data.corpus import ParallelCorpus

# Both determine the order of the sentences, as a seed does.
SENTENCES, BLOCK = 1 << 20, 1 << 12


class DataPosition(NamedTuple):
    """A position in the data.

    Attributes:
        epoch: epochs done.
        next_in_epoch: updates of the current epoch that are done.
        window: windows of the current epoch that are done.
        before_window: updates of the current epoch in those windows.
    """

    epoch: NonNegativeInt = 0
    next_in_epoch: NonNegativeInt = 0
    window: NonNegativeInt = 0
    before_window: NonNegativeInt = 0

    def epochs_of(self, corpus: str | None) -> int:
        """Epochs done; there is only one corpus."""
        return self.epoch

    def in_new_epoch(self) -> DataPosition:
        """The start of the next epoch, if this is not the start of one."""
        return DataPosition(self.epoch + 1) if self.next_in_epoch else self

    def to_json(self) -> dict[str, int]:
        """For `state.json`."""
        return self._asdict()


@dataclass(frozen=True)
class Window:
    """Sentences that are planned together.

    Attributes:
        indices: `(sentences,)` their numbers in the corpus.
        lengths: `(2, sentences)` of source and target, end of sentence included.
        updates: of `batching.updates`; sentences by their position in `indices`.
    """

    indices: Indices
    lengths: NDArray[np.int32]
    updates: list[list[Indices]]


@dataclass(frozen=True)
class Epoch:
    """The windows of one epoch of a corpus.

    Args:
        corpus: what is read.
        seed: of the training.
        number: of the epoch, from 0.
        sentences: of a window, about; the last block may add a few.
        block: contiguous sentences that always come in the same window.
    """

    corpus: ParallelCorpus
    seed: int
    number: int
    sentences: int = SENTENCES
    block: int = BLOCK

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._blocks)

    @cached_property
    def _blocks(self) -> list[NDArray[np.int64]]:
        """Numbers of the blocks of each window, ascending; windows of about equal size."""
        count = -(-len(self.corpus) // self.block)
        windows = min(count, -(-len(self.corpus) // self.sentences))
        if windows <= 1:
            return [np.arange(count)] * windows
        # A spawn key separates this generator from those of the windows.
        seeds = np.random.SeedSequence((self.seed, self.number), spawn_key=(0,))
        drawn = np.random.default_rng(seeds).permutation(count)
        return [np.sort(part) for part in np.array_split(drawn, windows)]

    def window(self, number: int, batches: Batches) -> Window:
        """Plan one window; reads the lengths of its sentences and nothing else."""
        firsts = self._blocks[number] * self.block
        spans = [(first, min(first + self.block, len(self.corpus))) for first in firsts.tolist()]
        lengths = np.empty((2, sum(last - first for first, last in spans)), np.int32)
        for side, sentences in enumerate((self.corpus.source, self.corpus.target)):
            parts = [sentences.places(slice(first, last))[1] for first, last in spans]
            np.concatenate(parts, out=lengths[side], casting="same_kind")
        return Window(
            np.concatenate([np.arange(first, last) for first, last in spans]),
            lengths,
            updates(
                lengths,
                group_tokens=batches.group_tokens,
                tokens_per_update=batches.tokens_per_update,
                seed=self.seed,
                epoch=self.number,
                window=number,
            ),
        )

    def turned(self, position: DataPosition, updates: int) -> DataPosition:
        """`position`, as the start of the next window or epoch if it is the end of one.

        Args:
            updates: of the window that `position` is in.
        """
        done = position.next_in_epoch
        if done < position.before_window + updates:
            return position
        if position.window + 1 < len(self):
            return DataPosition(self.number, done, position.window + 1, done)
        return DataPosition(self.number + 1)
