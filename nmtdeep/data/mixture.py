"""Updates from several corpora: which corpus each group of sentences comes from.

An update is filled with groups, as from one corpus. The corpus of the n-th group of a training is
drawn by its seed and n alone, so that a training is resumed exactly. Each corpus has its own
position, and its own epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeInt

from nmtdeep.config.stages import TEMPERATURE
from nmtdeep.config.training import Batches
from nmtdeep.data.batch import Indices
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.data.windows import BLOCK, SENTENCES, DataPosition, Epoch, Window
from nmtdeep.errors import UserError


class MixedPosition(NamedTuple):
    """A position in several corpora.

    Attributes:
        drawn: groups that were drawn.
        corpora: the position in each corpus by its name; `next_in_epoch` and `before_window` count
            groups instead of updates.
    """

    drawn: NonNegativeInt
    corpora: Annotated[dict[str, DataPosition], Field(min_length=1)]

    @property
    def epoch(self) -> int:
        """Epochs of the first corpus that are done."""
        return self.epochs_of(None)

    @property
    def next_in_epoch(self) -> int:
        """Groups of the current epoch of the first corpus that are done."""
        return next(iter(self.corpora.values())).next_in_epoch

    def epochs_of(self, corpus: str | None) -> int:
        """Epochs of a corpus that are done; None: of the first one."""
        return self.corpora[corpus or next(iter(self.corpora))].epoch

    def in_new_epoch(self) -> MixedPosition:
        """The position at the start of an epoch of each corpus; what is left of others is lost."""
        corpora = {name: each.in_new_epoch() for name, each in self.corpora.items()}
        return self._replace(corpora=corpora)

    def to_json(self) -> dict[str, object]:
        """For `state.json`."""
        corpora = {name: each.to_json() for name, each in self.corpora.items()}
        return {"drawn": self.drawn, "corpora": corpora}


Position = DataPosition | MixedPosition


def by_corpus(position: Position, names: Sequence[str]) -> dict[str, DataPosition]:
    """The position in each corpus.

    Raises:
        UserError: if the position is in other corpora.
    """
    if isinstance(position, MixedPosition) and [*position.corpora] == [*names]:
        return position.corpora
    if isinstance(position, DataPosition) and (len(names) == 1 or position == DataPosition()):
        return dict.fromkeys(names, position)
    before = [*position.corpora] if isinstance(position, MixedPosition) else ["one corpus"]
    raise UserError(
        f"trained on {', '.join(before)} so far, which cannot be continued on {', '.join(names)}",
        where="--data",
        hint="pass the corpora that the run was started with, or choose another --out",
    )


def mixture_probabilities(
    mixture: Mapping[str, float], corpora: Mapping[str, ParallelCorpus]
) -> dict[str, float]:
    """The share of the groups that is drawn from each corpus, by name; zero for an absent weight.

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


@dataclass(frozen=True)
class GroupsOfWindow:
    """Groups of one window of one corpus.

    Attributes:
        corpus: what the window is of.
        groups: sentences by their position in the window.
        position: in the corpus after them.
    """

    corpus: ParallelCorpus
    window: Window
    groups: list[Indices]
    position: DataPosition

    @property
    def tokens(self) -> int:
        """Padded tokens of the groups."""
        lengths = self.window.lengths
        return sum(len(group) * int(lengths[:, group].max()) for group in self.groups)


@dataclass(frozen=True)
class CorpusReader:
    """How corpora are read.

    Args:
        seed: of the training.
        batches: sizes of groups and updates.
        sentences, block: of each window, as of `Epoch`.
    """

    seed: int
    batches: Batches
    sentences: int = SENTENCES
    block: int = BLOCK

    def parts(
        self,
        corpus: Callable[[int], ParallelCorpus],
        position: DataPosition,
        each: Literal["update", "group"],
    ) -> Iterator[GroupsOfWindow]:
        """The updates of one corpus, or their groups one by one, epoch after epoch.

        Args:
            corpus: what is read in an epoch.
        """
        while True:
            read = corpus(position.epoch)
            epoch = Epoch(read, self.seed, position.epoch, self.sentences, self.block)
            done, before = position.next_in_epoch, position.before_window
            for number in range(position.window, len(epoch)):
                window = epoch.window(number, self.batches)
                parts = window.updates
                if each == "group":
                    parts = [[group] for group in chain.from_iterable(parts)]
                for groups in parts[done - before :]:
                    done += 1
                    after = DataPosition(epoch.number, done, number, before)
                    yield GroupsOfWindow(read, window, groups, epoch.turned(after, len(parts)))
                before += len(parts)
            position = DataPosition(epoch.number + 1)

    def mixed(
        self,
        corpora: Mapping[str, Callable[[int], ParallelCorpus]],
        position: MixedPosition,
        shares: Mapping[str, float],
    ) -> Iterator[tuple[list[GroupsOfWindow], MixedPosition]]:
        """The updates of several corpora, each with the position after it.

        A group that does not fit into an update is the first one of the next.
        """
        coming = {
            name: self.parts(corpora[name], position.corpora[name], "group") for name in shares
        }
        parts: dict[int, GroupsOfWindow] = {}
        room = self.batches.tokens_per_update
        while True:
            name = corpus_of_group(shares, self.seed, position.drawn)
            part = next(coming[name])
            if parts and part.tokens > room:
                yield list(parts.values()), position
                parts, room = {}, self.batches.tokens_per_update
            room -= part.tokens
            # Groups of one window stay together: on a GPU they are one batch.
            before = parts.get(id(part.window))
            groups = [*(before.groups if before else ()), *part.groups]
            parts[id(part.window)] = replace(part, groups=groups)
            position = MixedPosition(position.drawn + 1, position.corpora | {name: part.position})


def corpus_of_group(shares: Mapping[str, float], seed: int, number: int) -> str:
    """The corpus of one group, a function of the seed and the number of the group."""
    # A spawn key separates this generator from those of windows and epochs.
    seeds = np.random.SeedSequence((seed, number), spawn_key=(1,))
    place = np.random.default_rng(seeds).choice(len(shares), p=[*shares.values()])
    return [*shares][place]
