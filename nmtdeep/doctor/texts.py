"""The state of parallel text, counted line by line."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from nmtdeep.preprocessing.stages import pair_hash

# First lines of a split from which its languages are identified.
SAMPLE = 1000
# A pair is unusual if its length ratio is this many times that of the median pair, or the inverse.
UNUSUAL = 3.0

Pair = tuple[str | None, str | None]


@dataclass
class SplitState:
    """Counts of one split.

    Attributes:
        lines: of each file.
        pairs: that were examined: those with both sides.
        blank: pairs with a blank side.
        identical: pairs with equal sides that are not blank.
        log_ratios: logarithm of source length over target length, of pairs that are not blank.
        samples: first lines of each side.
        unknown: share of the subwords that are not in the vocabulary, by side; None if the text was
            not preprocessed.
        repeated: pairs that occur before in train; in other splits, pairs that occur in train.
        hashes: eight bytes for each pair.
        is_training: whether it is a training corpus.
    """

    lines: tuple[int, int] = (0, 0)
    pairs: int = 0
    blank: int = 0
    identical: int = 0
    log_ratios: array[float] = field(default_factory=lambda: array("f"))
    samples: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    unknown: tuple[float, float] | None = None
    repeated: int = 0
    hashes: bytearray = field(default_factory=bytearray)
    is_training: bool = False

    @property
    def median_ratio(self) -> float:
        """Source length over target length of the median pair; NaN without one."""
        return math.exp(self._median) if self.log_ratios else math.nan

    @property
    def unusual(self) -> int:
        """Pairs whose ratio is far from the median."""
        if not self.log_ratios:
            return 0
        distances = np.abs(np.array(self.log_ratios) - self._median)
        return int((distances > math.log(UNUSUAL)).sum())

    @property
    def _median(self) -> float:
        return float(np.quantile(self.log_ratios, 0.5, method="lower"))


def examine(pairs: Iterable[Pair]) -> SplitState:
    """Count a split; a side that is None has ended before the other."""
    state = SplitState()
    lines = [0, 0]
    for source, target in pairs:
        lines[0] += source is not None
        lines[1] += target is not None
        if source is None or target is None:
            continue
        for sample, line in zip(state.samples, (source, target), strict=True):
            if len(sample) < SAMPLE:
                sample.append(line)
        state.pairs += 1
        state.hashes += pair_hash((source, target))
        stripped = source.strip(), target.strip()
        if all(stripped):
            state.identical += stripped[0] == stripped[1]
            state.log_ratios.append(math.log(len(stripped[0]) / len(stripped[1])))
        else:
            state.blank += 1
    state.lines = (lines[0], lines[1])
    return state
