"""The state of parallel text: counted line by line, in memory that does not grow with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from nmtdeep.doctor.languages import words
from nmtdeep.preprocessing.stages import pair_hash

# Pairs from which the language is guessed.
SAMPLE = 10_000
# The logarithm to base 2 of source length over target length, in steps of 1/STEPS up to +-REACH.
STEPS, REACH = 20, 10
# A pair is unusual if its ratio is so many times that of the median pair, or so many times less.
UNUSUAL = 3.0

Pair = tuple[str | None, str | None]


def no_ratios() -> NDArray[np.int64]:
    """A histogram of length ratios, empty."""
    return np.zeros(2 * REACH * STEPS + 1, np.int64)


@dataclass
class SplitState:
    """What was counted of one split.

    Attributes:
        source, target: lines of each file.
        empty: pairs with a side that is blank.
        identical: pairs whose sides are equal, blank ones left out.
        ratios: histogram of source length over target length.
        words: of the first pairs of each side.
        unknown: share of what the training text does not have, by side; None for that text itself.
        repeated: pairs that stood there before, in train; elsewhere pairs that train has too.
    """

    source: int = 0
    target: int = 0
    empty: int = 0
    identical: int = 0
    ratios: NDArray[np.int64] = field(default_factory=no_ratios)
    words: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))
    unknown: tuple[float, float] | None = None
    repeated: int = 0

    @property
    def pairs(self) -> int:
        """Pairs that have both sides."""
        return min(self.source, self.target)

    @property
    def median_ratio(self) -> float:
        """Source length over target length of the median pair; NaN without one."""
        total = int(self.ratios.sum())
        if not total:
            return math.nan
        place = int(np.searchsorted(self.ratios.cumsum(), (total + 1) // 2))
        return float(2 ** (place / STEPS - REACH))

    @property
    def unusual(self) -> int:
        """Pairs whose ratio is far from the median."""
        if not self.ratios.any():
            return 0
        middle = round((math.log2(self.median_ratio) + REACH) * STEPS)
        reach = math.floor(math.log2(UNUSUAL) * STEPS)
        usual = self.ratios[max(0, middle - reach) : middle + reach + 1].sum()
        return int(self.ratios.sum() - usual)

    def add_lengths(self, source: NDArray[np.integer], target: NDArray[np.integer]) -> None:
        """Count the ratios of pairs of these lengths, none of which is 0."""
        places = np.rint((np.log2(source / target)).clip(-REACH, REACH) * STEPS) + REACH * STEPS
        self.ratios += np.bincount(places.astype(np.int64), minlength=len(self.ratios))


class Letters:
    """The letters of a training text, by side: no subwords can write others."""

    def __init__(self) -> None:
        self.known: tuple[set[str], set[str]] = (set(), set())

    def learn(self, side: int, line: str) -> None:
        """These are known from now on."""
        self.known[side].update(line)

    def unknown(self, side: int, line: str) -> int:
        """How many of a line's letters are not known."""
        strange = set(line) - self.known[side]
        return sum(line.count(letter) for letter in strange) if strange else 0


def examine(
    pairs: Iterable[Pair], *, letters: Letters, learn: bool, hashes: BinaryIO | None = None
) -> SplitState:
    """Count a split; a side that is None has no such line.

    Args:
        letters: of the training text, which are learned from it, or looked for elsewhere.
        hashes: where to write a hash of each pair.
    """
    state = SplitState()
    unknown, total = [0, 0], [0, 0]
    lengths: tuple[list[int], list[int]] = ([], [])
    for number, (source, target) in enumerate(pairs):
        state.source += source is not None
        state.target += target is not None
        if source is None or target is None:
            continue
        for side, line in enumerate((source, target)):
            if number < SAMPLE:
                state.words[side].update(words(line))
            total[side] += len(line)
            if learn:
                letters.learn(side, line)
            else:
                unknown[side] += letters.unknown(side, line)
        if hashes is not None:
            hashes.write(pair_hash((source, target)))
        sizes = len(source.strip()), len(target.strip())
        if not all(sizes):
            state.empty += 1
            continue
        state.identical += source.strip() == target.strip()
        for lists, size in zip(lengths, sizes, strict=True):
            lists.append(size)
        if len(lengths[0]) == SAMPLE:
            _flush(state, lengths)
    _flush(state, lengths)
    if not learn:
        state.unknown = (unknown[0] / max(total[0], 1), unknown[1] / max(total[1], 1))
    return state


def _flush(state: SplitState, lengths: tuple[list[int], list[int]]) -> None:
    if lengths[0]:
        state.add_lengths(np.array(lengths[0]), np.array(lengths[1]))
    for one in lengths:
        one.clear()
