"""Byte-pair encoding (Sennrich et al. 2016) by subword-nmt, with an unambiguous way back."""

from __future__ import annotations

import contextlib
import io
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from subword_nmt import apply_bpe
from subword_nmt.learn_bpe import learn_bpe

from nmtdeep.errors import DataError
from nmtdeep.text.lines import read_lines
from nmtdeep.text.vocabulary import HINT

SEPARATOR = "@@"
WORD_END = "</w>"
LONGEST_WORD = 500
# Words whose pieces are cached.
REMEMBERED = 1 << 18
_HEADER = "#version: 0.2"


def learn(
    counts: Mapping[str, int], merges: int, *, report: Callable[[int], object] = lambda _: None
) -> tuple[str, ...]:
    """Merge operations, most frequent first, from word counts; fewer where no pair occurs twice.

    The words are passed in code point order, so that equal counts always lead to equal merges.
    `report` is called with the number of merges learned so far.
    """
    parts: Counter[str] = Counter()
    for word, count in counts.items():
        for part in _parts(word):
            parts[part] += count
    words = sorted(parts)
    if all(len(word) == 1 for word in words):
        return ()
    lines: list[str] = []

    def write(line: str) -> None:
        lines.append(line.removesuffix("\n"))
        report(len(lines) - 1)

    counted, codes = [f"{word} {parts[word]}" for word in words], SimpleNamespace(write=write)
    with contextlib.redirect_stderr(io.StringIO()):  # subword-nmt's own progress bar
        learn_bpe(counted, codes, merges, is_dict=True)
    return tuple(lines[1:])


def _parts(word: str) -> list[str]:
    """subword-nmt takes time with the square of a word's length, so longer words are sliced."""
    return [word[start : start + LONGEST_WORD] for start in range(0, len(word), LONGEST_WORD)]


class _Dropping:
    """Ranks of merges, of which each is missing with some probability whenever it is looked for.

    subword-nmt's own dropout draws from Python's global generator, which threads share.
    """

    def __init__(
        self, ranks: Mapping[tuple[str, ...], int], dropout: float, draw: Callable[[], float]
    ) -> None:
        self.ranks, self.dropout, self.draw = ranks, dropout, draw

    def __contains__(self, pair: object) -> bool:
        return self.draw() > self.dropout and pair in self.ranks

    def __getitem__(self, pair: tuple[str, ...]) -> int:
        return self.ranks[pair]


@dataclass(frozen=True)
class Bpe:
    """Merges of one side, and the subwords it may use (None: any), as subword-nmt applies them."""

    merges: tuple[str, ...]
    allowed: frozenset[str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the caches: they can be large, and every process fills its own."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _ranks(self) -> dict[tuple[str, ...], int]:
        ranks: dict[tuple[str, ...], int] = {}
        for rank, merge in enumerate(self.merges):
            ranks.setdefault(tuple(merge.split(" ")), rank)
        return ranks

    @cached_property
    def _parts(self) -> dict[str, tuple[str, ...]]:
        return {"".join(pair): pair for pair in self._ranks}

    @cached_property
    def word(self) -> Callable[[str], tuple[str, ...]]:
        """Subwords of one word; all but the last end in `@@`."""
        return lru_cache(REMEMBERED)(lambda word: self._encode(word, self._ranks))

    def dropped(self, word: str, dropout: float, draw: random.Random) -> tuple[str, ...]:
        """As `word`, but each merge is skipped with this probability (Provilkov et al. 2020)."""
        return self._encode(word, _Dropping(self._ranks, dropout, draw.random))

    def _encode(
        self, word: str, ranks: Mapping[tuple[str, ...], int] | _Dropping
    ) -> tuple[str, ...]:
        *head, last = (
            piece
            for part in _parts(word)
            # A new cache, as that of subword-nmt would keep the result of dropout.
            for piece in apply_bpe.encode(
                part, ranks, self._parts, self.allowed, SEPARATOR, (0, 2), {}
            )
        )
        if last.endswith(SEPARATOR):
            # A word that itself ends in @@ would be joined with the next word.
            head.append(last[:-1])
            last = last[-1]
        return (*(piece + SEPARATOR for piece in head), last)

    def split(self, words: Iterable[str]) -> list[str]:
        """Subwords of a sentence."""
        return [piece for word in words for piece in self.word(word)]

    def count(self, words: Mapping[str, int]) -> Counter[str]:
        """Counts of the subwords in a text with these word counts."""
        counts: Counter[str] = Counter()
        for word, number in words.items():
            for piece in self.word(word):
                counts[piece] += number
        return counts

    def symbols(self, words: Iterable[str]) -> set[str]:
        """Every subword that dropout can make of these words: characters and merges."""
        pieces = {piece for word in words for piece in Bpe(()).word(word)}
        symbols = (merge.replace(" ", "") for merge in self.merges)
        return pieces | {
            each.removesuffix(WORD_END) if each.endswith(WORD_END) else each + SEPARATOR
            for each in symbols
        }

    def dumps(self) -> str:
        """The codes file, as subword-nmt writes it."""
        return "\n".join((_HEADER, *self.merges)) + "\n"


def join(tokens: Sequence[str]) -> list[str]:
    """Words of subwords; a last subword that still ends in `@@` is closed as it is."""
    line = " ".join([*tokens, ""]).replace(f"{SEPARATOR} ", "").removesuffix(" ")
    return line.split(" ") if line else []


def load_merges(path: Path, *, hint: str = HINT) -> tuple[str, ...]:
    """Merges of a codes file; DataError names the line that is not one."""
    lines = read_lines(path)
    if next(lines) != _HEADER:
        raise DataError(f"expected {_HEADER}", where=f"{path}:1", hint=hint)
    merges = []
    for number, line in enumerate(lines, 2):
        if len(line.split(" ")) != 2 or not all(line.split(" ")):
            raise DataError(
                "expected two subwords and a space", where=f"{path}:{number}", hint=hint
            )
        merges.append(line)
    return tuple(merges)
