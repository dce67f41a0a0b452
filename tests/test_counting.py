"""Counts of preprocessing: exact up to a capacity, and bounded by it."""

import random
from collections import Counter

from nmtdeep.preprocessing.counting import WORDS as WORDS_COUNTED
from nmtdeep.preprocessing.counting import Tally

TEXT = "to be or not to be that is the question whether tis nobler in the mind to suffer"
WORDS = TEXT.split()


def tallied(words: list[str], capacity: int = WORDS_COUNTED) -> Tally:
    tally, size = Tally(capacity), 3
    for first in range(0, len(words), size):
        tally.add(Counter(words[first : first + size]))
        assert len(tally.counts) <= capacity
    return tally


def test_counts_are_exact_up_to_the_capacity():
    tally = tallied(WORDS)
    assert tally.counts == Counter(WORDS)
    assert tally.forgotten == 0


def test_the_rarest_words_are_forgotten_and_counted_as_forgotten():
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
