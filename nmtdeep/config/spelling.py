"""The word that was meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def similar(word: Any, words: Iterable[str], *, most: int = 1, cutoff: float = 0.6) -> list[str]:
    """The most similar of these words, the nearest first.

    Args:
        most: how many at most.
        cutoff: how similar they are at least, from 0 to 1.
    """
    return get_close_matches(str(word), list(words), n=most, cutoff=cutoff)


def did_you_mean(word: Any, words: Iterable[str]) -> str:
    """A question about the most similar of these words; empty if none is similar."""
    return "".join(f"did you mean {each}?" for each in similar(word, words))
