"""Counts over a text of any length, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Different words of one side that are counted at a time; hashes that are sorted at a time.
WORDS, HASHES = 1 << 21, 1 << 22

Hashes = npt.NDArray[np.uint64]


class Tally:
    """Number of occurrences of each word; exact while there are at most `capacity` different ones.

    Beyond that the rarest words are forgotten, until half of the capacity is free. A forgotten
    word has fewer occurrences so far than any that is kept, and may be counted again.

    Attributes:
        counts: of the words that are not forgotten.
        total: occurrences of all words.
    """

    def __init__(self, capacity: int = WORDS) -> None:
        self.capacity = capacity
        self.counts: Counter[str] = Counter()
        self.total = 0

    @property
    def forgotten(self) -> int:
        """Occurrences that were not counted."""
        return self.total - self.counts.total()

    def add(self, counts: Counter[str]) -> None:
        """Count the words of one more piece of text."""
        self.counts.update(counts)
        self.total += counts.total()
        if len(self.counts) > self.capacity:
            rarest = sorted(self.counts.values(), reverse=True)[self.capacity // 2]
            self.counts = Counter({word: n for word, n in self.counts.items() if n > rarest})


def repetitions(train: Path, others: Sequence[Path], *, at_once: int = HASHES) -> list[int]:
    """Number of pairs of train that are repeated, then those of each other split that are in train.

    Args:
        train: file of its pairs' hashes; so are the others. They are read several times,
            each time for hashes with other last bits.
    """
    size = train.stat().st_size // np.dtype(np.uint64).itemsize
    parts = 1 << (-(-max(size, 1) // at_once) - 1).bit_length()
    counts = [0] * (1 + len(others))
    for part in range(parts):
        mine = np.concatenate([np.empty(0, np.uint64), *_hashes(train, parts, part, at_once)])
        distinct = np.unique(mine)
        counts[0] += len(mine) - len(distinct)
        for place, path in enumerate(others, 1):
            counts[place] += sum(
                int(np.isin(few, distinct).sum()) for few in _hashes(path, parts, part, at_once)
            )
    return counts


def _hashes(path: Path, parts: int, part: int, at_once: int) -> Iterator[Hashes]:
    """The hashes of a file that end in the bits of `part`; `parts` is a power of two."""
    with path.open("rb") as stream:
        while len(hashes := np.fromfile(stream, np.uint64, at_once)):
            yield hashes[hashes & np.uint64(parts - 1) == part]
