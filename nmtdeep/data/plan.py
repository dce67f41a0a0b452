"""The order of the updates: which sentences each has, epoch after epoch, from one or more corpora.

An epoch is planned in windows, so that planning takes the same memory and time for a corpus of any
size. A window holds about a million sentences: contiguous blocks of the corpus, drawn by seed and
epoch. They are sorted, grouped and shuffled among themselves when its turn comes.

Of several corpora, the n-th group of a training comes from the corpus that is drawn by its seed and
n alone, so that a training is resumed exactly. Each corpus has its own position and epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmtdeep.config.stages import TEMPERATURE
from nmtdeep.config.training import Batches
from nmtdeep.data.batching import Indices, updates
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.data.position import DataPosition, MixedPosition, Position, by_corpus
from nmtdeep.errors import UserError

# Both determine the order of the sentences, as a seed does.
SENTENCES, BLOCK = 1 << 20, 1 << 12
# A corpus as it is read in an epoch.
Corpus = Callable[[int], ParallelCorpus]


@dataclass(frozen=True)
class Window:
    """Sentences of a corpus that are planned together.

    Attributes:
        indices: `(sentences,)` their numbers in the corpus.
        lengths: `(2, sentences)` of source and target, end of sentence included.
        updates: of `batching.updates`; sentences by their position in `indices`.
    """

    corpus: ParallelCorpus
    indices: Indices
    lengths: NDArray[np.int32]
    updates: list[list[Indices]]


class Groups(NamedTuple):
    """Groups of an update that are in one window: sentences by their position there."""

    window: Window
    groups: list[Indices]


@dataclass(frozen=True)
class Plan:
    """The updates of a training, a function of its seed, its corpora and these sizes.

    Args:
        sentences: of a window, about; the last block may add a few.
        block: contiguous sentences that always come in the same window.
    """

    seed: int
    batches: Batches
    sentences: int = SENTENCES
    block: int = BLOCK

    def updates(
        self, corpora: Mapping[str, Corpus], position: Position, mixture: Mapping[str, float]
    ) -> Iterator[tuple[list[Groups], Position]]:
        """The updates after a position, each with the position after it.

        Raises:
            UserError: if the position or the mixture is of other corpora.
        """
        places = by_corpus(position, [*corpora])
        if len(corpora) == 1:
            [(name, place)] = places.items()
            for groups, after in self._of_corpus(corpora[name], place):
                yield [groups], after
            return
        drawn = position.drawn if isinstance(position, MixedPosition) else 0
        weights = mixture_probabilities(mixture, {name: corpora[name](0) for name in corpora})
        yield from self._mixed(corpora, MixedPosition(drawn, places), weights)

    def _of_corpus(
        self, corpus: Corpus, position: DataPosition, *, single: bool = False
    ) -> Iterator[tuple[Groups, DataPosition]]:
        """The updates of one corpus, epoch after epoch; their groups one by one if `single`."""
        while True:
            read = corpus(position.epoch)
            window = self.window(read, position.epoch, position.window)
            parts = window.updates
            if single:
                parts = [[group] for group in chain.from_iterable(parts)]
            last = position.before_window + len(parts)
            following = DataPosition(position.epoch + 1)
            if position.window + 1 < len(self.blocks(read, position.epoch)):
                done = max(position.next_in_epoch, last)
                following = DataPosition(position.epoch, done, position.window + 1, last)
            first = position.next_in_epoch - position.before_window
            for number, groups in enumerate(parts[first:], position.next_in_epoch + 1):
                after = position._replace(next_in_epoch=number)
                yield Groups(window, groups), following if number == last else after
            position = following

    def _mixed(
        self, corpora: Mapping[str, Corpus], position: MixedPosition, weights: Mapping[str, float]
    ) -> Iterator[tuple[list[Groups], MixedPosition]]:
        """The updates of several corpora; a group that does not fit begins the next one."""
        coming = {
            name: self._of_corpus(corpora[name], position.corpora[name], single=True)
            for name in weights
        }
        update: dict[int, Groups] = {}
        room = self.batches.tokens_per_update
        while True:
            name = corpus_of_group(weights, self.seed, position.drawn)
            (window, [group]), place = next(coming[name])
            tokens = len(group) * int(window.lengths[:, group].max())
            if update and tokens > room:
                yield list(update.values()), position
                update, room = {}, self.batches.tokens_per_update
            room -= tokens
            # Groups of one window stay together: on a GPU they are one batch.
            update.setdefault(id(window), Groups(window, [])).groups.append(group)
            position = MixedPosition(position.drawn + 1, position.corpora | {name: place})

    def blocks(self, corpus: ParallelCorpus, epoch: int) -> list[NDArray[np.int64]]:
        """Numbers of the blocks of each window, ascending; windows of about equal size."""
        count = -(-len(corpus) // self.block)
        windows = min(count, -(-len(corpus) // self.sentences))
        if windows <= 1:
            return [np.arange(count)] * windows
        # A spawn key separates this generator from those of the windows.
        seeds = np.random.SeedSequence((self.seed, epoch), spawn_key=(0,))
        drawn = np.random.default_rng(seeds).permutation(count)
        return [np.sort(part) for part in np.array_split(drawn, windows)]

    def window(self, corpus: ParallelCorpus, epoch: int, number: int) -> Window:
        """Plan one window; reads the lengths of its sentences and nothing else."""
        firsts = self.blocks(corpus, epoch)[number] * self.block
        spans = [(first, min(first + self.block, len(corpus))) for first in firsts.tolist()]
        lengths = np.empty((2, sum(last - first for first, last in spans)), np.int32)
        for side, sentences in enumerate((corpus.source, corpus.target)):
            parts = [sentences.places(slice(first, last))[1] for first, last in spans]
            np.concatenate(parts, out=lengths[side], casting="same_kind")
        indices = np.concatenate([np.arange(first, last) for first, last in spans])
        planned = updates(lengths, self.batches, seed=self.seed, epoch=epoch, window=number)
        return Window(corpus, indices, lengths, planned)


def mixture_probabilities(
    mixture: Mapping[str, float], corpora: Mapping[str, ParallelCorpus]
) -> dict[str, float]:
    """The probability of each corpus to be that of a group, by name; zero for an absent weight.

    A temperature T means tokens^(1/T), divided by the sum over the corpora (Arivazhagan et al.
    2019); without a mixture T is 1.

    Raises:
        UserError: if the mixture names another corpus.
    """
    names = ", ".join(corpora)
    if unknown := [name for name in mixture if name not in (*corpora, TEMPERATURE)]:
        raise UserError(
            f"no training corpus {unknown[0]}, only {names}",
            where="training.mixture",
            hint="name the corpora as in nmtdeep preprocess --train NAME=PREFIX",
        )
    weights, power = {name: mixture.get(name, 0.0) for name in corpora}, 1.0
    if not any(weights.values()):
        power = 1 / mixture.get(TEMPERATURE, 1.0)
        for name, each in corpora.items():
            weights[name] = float(len(each.source.tokens) + len(each.target.tokens))
    largest = max(weights.values())  # first divided by it, so that no sum is infinite
    powers = {name: (weight / largest) ** power for name, weight in weights.items()}
    total = sum(powers.values())
    return {name: each / total for name, each in powers.items()}


def corpus_of_group(weights: Mapping[str, float], seed: int, number: int) -> str:
    """The corpus of one group, a function of the seed and the number of the group."""
    # A spawn key separates this generator from those of windows and epochs.
    seeds = np.random.SeedSequence((seed, number), spawn_key=(1,))
    place = np.random.default_rng(seeds).choice(len(weights), p=[*weights.values()])
    return [*weights][place]
