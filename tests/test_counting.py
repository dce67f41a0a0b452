"""Counts of preprocessing: exact up to a capacity, and bounded by it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from nmtdeep.preprocessing.counting import WORDS as WORDS_COUNTED
from nmtdeep.preprocessing.counting import Tally, mark_repeated

TEXT = "to be or not to be that is the question whether tis nobler in the mind to suffer"
WORDS = TEXT.split()


def tallied(words: list[str], capacity: int = WORDS_COUNTED) -> Tally:
    tally, size = Tally(capacity), 3
    for first in range(0, len(words), size):
        tally.add(Counter(words[first : first + size]))
        assert len(tally.counts) <= capacity
    return tally


def test_counts_are_exact_up_to_the_capacity() -> None:
    tally = tallied(WORDS)
    assert tally.counts == Counter(WORDS)
    assert tally.forgotten == 0


def test_the_rarest_words_are_forgotten_and_counted_as_forgotten() -> None:
    tally = Tally(6)
    tally.add(Counter({"a": 5, "b": 4, "c": 3, "d": 2, "e": 1, "f": 1}))
    assert tally.forgotten == 0
    # The seventh word leaves the three most frequent; "d" is not among them.
    tally.add(Counter({"g": 2, "c": 1}))
    assert tally.counts == {"a": 5, "b": 4, "c": 4}
    assert tally.forgotten == 6
    tally.add(Counter({"d": 1}))
    assert tally.counts["d"] == 1
    assert tally.forgotten == 6
    many = tallied([f"w{random.Random(3).randrange(40) + place % 7}" for place in range(300)], 6)
    assert many.forgotten == 300 - many.counts.total()


@pytest.mark.parametrize("room", [1, 2, 3, 7, 1000])
def test_repetitions_are_those_of_a_dictionary(room: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    train = draw.integers(0, 30, 60).astype(np.uint64)
    others = [draw.integers(0, 60, size).astype(np.uint64) for size in (20, 0, 5)]
    paths = [tmp_path / str(number) for number in range(4)]
    for path, hashes in zip(paths, [train, *others], strict=True):
        path.write_bytes(hashes.tobytes())
    known = set(train.tolist())
    expected = [60 - len(known), *(sum(value in known for value in few.tolist()) for few in others)]
    marked = [(path, np.ones(path.stat().st_size // 8, np.bool_)) for path in paths]
    mark_repeated(marked[:1], marked[1:], at_once=room)
    assert [flags.sum() for _, flags in marked] == expected
    paths[0].write_bytes(b"")
    mark_repeated([(paths[0], np.ones(0, np.bool_))], marked[1:], at_once=room)
    assert not any(flags.any() for _, flags in marked[1:])
