"""Warnings about text that is not what it should be, from a sample of its lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from nmtdeep.config.text import Form
from nmtdeep.errors import Problem
from nmtdeep.preprocessing.language import language_of, unchecked
from nmtdeep.text.tokenization import primary

# Pairs of a sample of a longer text, at least; and about how many of them have their languages
# identified.
SIZE, IDENTIFIED = 2000, 200
LONGEST = 2000  # letters of a line that are looked at
# Share of these that may look swapped: short lines look like anything.
SWAPPED = 0.2
# First words of the names of columns, in addition to the codes of the languages.
_COLUMNS = re.compile(
    "source|target|src|tgt|trg|reference|translation|original|text|sentence|arabic|chinese|czech|"
    "dutch|english|french|german|hindi|italian|japanese|korean|polish|portuguese|russian|spanish|"
    "swedish|turkish|ukrainian|vietnamese"
)


@dataclass
class CheckedText:
    """Pairs at equal distances in a text of any length, with their line numbers, from 1.

    Attributes:
        step: the distance; it doubles whenever there are too many pairs.
    """

    pairs: list[tuple[int, tuple[str, str]]] = field(default_factory=list)
    step: int = 1

    def add(self, number: int, pair: tuple[str, str]) -> None:
        """Look at the next pair of the text."""
        if (number - 1) % self.step:
            return
        self.pairs.append((number, (pair[0][:LONGEST], pair[1][:LONGEST])))
        if len(self.pairs) == 2 * SIZE:
            self.pairs, self.step = self.pairs[::2], 2 * self.step


def _is_mojibake(line: str) -> bool:
    """Whether UTF-8 was read as another encoding, or characters were lost."""
    for word in re.findall(r"[^\0-\x7f]{2,}", line):
        # The shortest words of Ukrainian, as "no", are bytes of UTF-8 too.
        encodings = ("cp1252", "latin-1", "cp1250", "cp1251")
        for encoding in encodings if len(word) > 3 else encodings[:2]:
            with suppress(UnicodeError):
                word.encode(encoding).decode("utf-8")
                return True
    return "\ufffd" in line


class _Sign(NamedTuple):
    """Something that text should not have in more than a `share` of its lines."""

    share: float
    is_in: Callable[[str], object]
    what: str
    hint: str


_SIGNS = (
    _Sign(0.002, _is_mojibake, "characters of a wrong encoding (mojibake), such as Ã¤ for ä",
          "write the file again from its source, read in the right encoding"),
    _Sign(0, re.compile(r'(?=.*"")"([^"]|"")*"').fullmatch, "quotes of CSV, which become text",
          "convert the file by a reader of CSV, to fields without quotes around them"),
    _Sign(0, re.compile("\r").search, "carriage returns inside",
          "if they end lines, convert the file: tr '\\r' '\\n'"),
    _Sign(0.02, re.compile("\0").search, "NUL characters, as UTF-16 has",
          "convert the file: iconv -f utf-16le -t utf-8"),
    _Sign(0.02, re.compile(r"\w@@( |$)|(^| )▁\S").search, "subwords (@@ or ▁)",
          "join them to words, or use --input-is bpe"),
)  # fmt: skip


def warnings(
    sample: CheckedText, names: Sequence[str], languages: tuple[str, str], form: Form
) -> Iterator[Problem]:
    """A problem for each thing that the text of a split should not have."""
    if sample.pairs:
        yield from _header(sample.pairs[0][1], names[0], languages)
    for side, name in enumerate(names):
        lines = [(number, pair[side]) for number, pair in sample.pairs]
        for sign in _SIGNS[:-1] if form == "bpe" else _SIGNS:
            found = [number for number, line in lines if sign.is_in(line)]
            if len(found) > sign.share * len(lines):
                yield Problem(f"{_count(found, lines)} have {sign.what}", name, sign.hint)
    if not unchecked(languages):
        yield from _swapped(sample, names, languages)


def _count(found: Sequence[int], lines: Sequence[object]) -> str:
    return f"{len(found):,} of {len(lines):,} lines looked at (such as line {found[0]:,})"


def _header(pair: tuple[str, str], name: str, languages: tuple[str, str]) -> Iterator[Problem]:
    words = [re.findall(r"[^\W_]+", side.lower()) for side in pair]
    codes = [*map(primary, languages)]
    firsts = [each[0] for each in words if 0 < len(each) < 3]
    if sum(first in codes or bool(_COLUMNS.fullmatch(first)) for first in firsts) == 2:
        what = f"line 1 has the names of columns ({' and '.join(pair)}), not a pair of sentences"
        yield Problem(what, name, "delete this line")


def _swapped(
    sample: CheckedText, names: Sequence[str], languages: tuple[str, str]
) -> Iterator[Problem]:
    """Sides that are in the other language, as py3langid identifies them."""
    pairs = [each for each in sample.pairs if all(map(str.strip, each[1]))]
    pairs = pairs[:: max(1, len(pairs) // IDENTIFIED)]
    other = [*map(primary, reversed(languages))]
    wrong = [
        [number for number, pair in pairs if language_of(pair[side]) == other[side]]
        for side in (0, 1)
    ]
    if both := sorted({*wrong[0]} & {*wrong[1]}):
        what = f"{_count(both, pairs)} are {other[0]} as source and {other[1]} as target"
        if len(both) > SWAPPED * len(pairs):
            yield Problem(what, " and ".join(dict.fromkeys(names)), "exchange them, or -s and -t")
            return
    for side, found in enumerate(wrong):
        if 2 * len(found) > len(pairs):
            what = f"{_count(found, pairs)} look like {other[side]}, not {languages[side]}"
            yield Problem(what, names[side], "check the file, or swap -s and -t")
