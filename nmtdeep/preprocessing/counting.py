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

    def __init__(self, capacity: int = WORDS) -> None:
        self.capacity = capacity
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


def repetitions(
    train: Sequence[Path],
    others: Sequence[Path],
    *,
    flags: Sequence[npt.NDArray[np.bool_]] = (),
    at_once: int = HASHES,
) -> list[int]:
    """Count pairs of equal hashes.

    Args:
        train: files of the pairs' hashes, one for each corpus; so are the others. They are read
            several times, each time for hashes with other last bits.
        flags: for each corpus an array that is set to whether a pair occurs before.

    Returns:
        For each corpus, its pairs that occur before, in it or in a corpus before it; then for each
        of the others, the pairs that occur in a corpus.
    """
    sizes = [path.stat().st_size // np.dtype(np.uint64).itemsize for path in train]
    parts = 1 << (-(-max(sum(sizes), 1) // at_once) - 1).bit_length()
    found = np.zeros(len(train) + len(others), np.int64)
    for part in range(parts):
        mine = [_hashes(path, parts, part, at_once) for path in train]
        distinct, firsts = np.unique(np.concatenate([each for _, each in mine]), return_index=True)
        repeated = np.ones(sum(len(each) for _, each in mine), np.bool_)
        repeated[firsts] = False
        for number, (places, _) in enumerate(mine):
            here, repeated = repeated[: len(places)], repeated[len(places) :]
            found[number] += here.sum()
            if flags:
                flags[number][places] = here
        for number, path in enumerate(others, len(train)):
            found[number] += np.isin(_hashes(path, parts, part, at_once)[1], distinct).sum()
    return [*map(int, found)]


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
