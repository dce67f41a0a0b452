"""The word that was meant: a similar one, or ours for a word of another toolkit.

The toolkits are fairseq, Hugging Face, Marian, JoeyNMT and Eole. The table `other_toolkits.tsv` has
their names, and those of earlier versions, in three columns: places, names and the cure. A place is
`key`, `command`, `metric`, or the command whose option it is; a cure with a space is a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any


def similar(word: Any, words: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """At most `most` words, at least as similar as `cutoff` (0 to 1), the nearest first."""
    return get_close_matches(str(word), list(words), n=most, cutoff=cutoff)


def did_you_mean(word: Any, words: Iterable[str]) -> str:
    """A question about the most similar of these words; empty if none is similar."""
    return "".join(f"did you mean {each}?" for each in similar(word, words))


@cache
def _table() -> dict[tuple[str, str], str]:
    text = (files(__package__) / "other_toolkits.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {
        (p, n): cure for places, names, cure in rows for p in places.split() for n in names.split()
    }


def instead(place: str, name: str) -> str:
    """What to write for a name of another toolkit; empty if the table does not have it."""
    return _table().get((place, name.strip("-").replace("-", "_").lower()), "")
