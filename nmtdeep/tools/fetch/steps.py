"""The steps that each pair goes through before it is written."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nmtdeep.preprocessing.transforms import Pair, reason_to_drop
from nmtdeep.text.chinese import CHINESE, jieba
from nmtdeep.text.lines import BYTE_ORDER_MARK
from nmtdeep.text.tokenization import Moses, moses
from nmtdeep.tools.fetch.catalog import Output, Step
from nmtdeep.tools.fetch.readers import RawPair

# Moses' deescape-special-chars.perl; `&amp;` last, to avoid unescaping twice.
_ESCAPES = {
    "&bar;": "|", "&#124;": "|", "&lt;": "<", "&gt;": ">", "&bra;": "[", "&ket;": "]",
    "&quot;": '"', "&apos;": "'", "&#91;": "[", "&#93;": "]", "&amp;": "&",
}  # fmt: skip
_ESCAPE = re.compile("|".join(_ESCAPES))
# As in Moses' truecase.perl.
_SENTENCE_ENDS = frozenset(".:?!")
_OPENING = frozenset(["(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"])


@dataclass(frozen=True)
class Casing:
    """Spellings in truecased text: all of them, and the most frequent one of each word."""

    known: frozenset[str]
    best: dict[str, str]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Casing:
        """Counted in tokenized, truecased text."""
        counts = Counter(word for line in lines for word in line.split())
        best: dict[str, str] = {}
        for word, _ in counts.most_common():
            best.setdefault(word.lower(), word)
        return cls(frozenset(counts), best)

    def truecase(self, words: Sequence[str]) -> Iterator[str]:
        """Moses' truecase.perl: first and unknown words get their most frequent spelling."""
        first = True
        for word in words:
            if first or word not in self.known:
                yield self.best.get(word.lower(), word)
            else:
                yield word
            if word in _SENTENCE_ENDS:
                first = True
            elif word not in _OPENING:
                first = False


def prepare(
    pairs: Iterable[RawPair],
    output: Output,
    languages: tuple[str, str],
    casings: Sequence[Casing | None],
    dropped: Counter[str],
) -> Iterator[Pair]:
    """The pairs of an output after its steps, without those that are not valid.

    Args:
        casings: of source and target, for truecasing.
        dropped: counts the pairs that are not valid, by reason.
    """
    for raw in pairs:
        try:
            source, target = (
                _prepare_line(line, output.steps, language, casing)
                for line, language, casing in zip(raw, languages, casings, strict=True)
            )
        except UnicodeDecodeError:
            dropped["not valid UTF-8"] += 1
            continue
        reason = None
        if not source and not target:
            reason = "both sides are empty"
        elif output.clean is not None:
            lengths = len(source.split()), len(target.split())
            reason = reason_to_drop(*lengths, output.clean, unit="words")
        if reason:
            dropped[reason] += 1
        else:
            yield source, target


def _prepare_line(raw: bytes, steps: Iterable[Step], language: str, casing: Casing | None) -> str:
    line = raw.decode("utf-8").lstrip(BYTE_ORDER_MARK)
    for step in steps:
        match step:
            case "non_printing":
                line = _printable(line)
            case "quotes":
                line = line.replace("’", "'")
            case "unescape":
                line = _ESCAPE.sub(lambda match: _ESCAPES[match[0]], line)
            case "normalize":
                line = _tokenizer(language).normalize(line)
            case "tokenize":
                line = " ".join(_tokenizer(language).tokenize(line))
            case "tokenize_hyphens":
                line = " ".join(_tokenizer(language, aggressive_hyphens=True).tokenize(line))
            case "truecase" if casing is not None:
                line = " ".join(casing.truecase(line.split()))
    return line


def _printable(line: str) -> str:
    """Moses' remove-non-printing-char.perl: a space for each control or format character."""
    if line.isprintable():
        return line
    return "".join(
        " " if unicodedata.category(letter).startswith("C") else letter for letter in line
    )


def _tokenizer(language: str, *, aggressive_hyphens: bool = False) -> Moses:
    if language == CHINESE:
        return jieba(aggressive_hyphens=aggressive_hyphens)
    return moses(language, aggressive_hyphens=aggressive_hyphens)
