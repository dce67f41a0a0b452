"""Counts over a text of any length, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

# Different words of one side that are counted at a time; hashes that are sorted at a time.
WORDS, HASHES = 1 << 21, 1 << 22


class Tally:
    """Number of occurrences of each word; exact while there are at most `capacity` different ones.

    Beyond that the rarest words are forgotten, until half of the capacity is free. A forgotten
    word has fewer occurrences so far than any that is kept, and may be counted again.

    Attributes:
        counts: of the words that are not forgotten.
        forgotten: occurrences that were not counted.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity or WORDS
        self.counts: Counter[str] = Counter()
        self.forgotten = 0

    def add(self, counts: Counter[str]) -> None:
        """Count the words of one more piece of text."""
        self.counts.update(counts)
        if len(self.counts) > self.capacity:
            total = self.counts.total()
            rarest = sorted(self.counts.values(), reverse=True)[self.capacity // 2]
            self.counts = Counter({word: n for word, n in self.counts.items() if n > rarest})
            self.forgotten += total - self.counts.total()


Hashed = Sequence[tuple[Path, npt.NDArray[np.bool_]]]


def mark_repeated(train: Hashed, others: Hashed, *, at_once: int = HASHES) -> None:
    """Set whether each pair occurs before, in its corpus or an earlier one; of others, in a corpus.

    Args:
        train: of each corpus, the file of its pairs' hashes and what is to be set; so are the
            others. The files are read several times, each time for hashes with other last bits.
    """
    sizes = [len(repeated) for _, repeated in train]
    parts = 1 << (-(-max(sum(sizes), 1) // at_once) - 1).bit_length()
    for part in range(parts):
        mine = [_hashes(path, parts, part, at_once) for path, _ in train]
        distinct, firsts = np.unique(np.concatenate([each for _, each in mine]), return_index=True)
        is_later = np.ones(sum(len(each) for _, each in mine), np.bool_)
        is_later[firsts] = False
        for (_, repeated), (places, _) in zip(train, mine, strict=True):
            repeated[places], is_later = is_later[: len(places)], is_later[len(places) :]
        for path, repeated in others:
            places, hashes = _hashes(path, parts, part, at_once)
            repeated[places] = np.isin(hashes, distinct)


def _hashes(
    path: Path, parts: int, part: int, at_once: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    """The hashes of a file that end in the bits of `part`, after their places in the file.

    `parts` is a power of two.
    """
    places, found, first = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], 0
    with path.open("rb") as stream:
        while len(hashes := np.fromfile(stream, np.uint64, at_once)):
            mine = np.flatnonzero(hashes & np.uint64(parts - 1) == part)
            places.append(first + mine)
            found.append(hashes[mine])
            first += len(hashes)
    return np.concatenate(places), np.concatenate(found)
