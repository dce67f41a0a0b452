"""What is done with each pair before it is written."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmtdeep.config.text import Clean
from nmtdeep.errors import UserError
from nmtdeep.fetching.catalog import Step
from nmtdeep.fetching.readers import RawPair
from nmtdeep.preprocessing.stages import Pair, fault
from nmtdeep.text.chinese import CHINESE, Jieba, jieba
from nmtdeep.text.files import BYTE_ORDER_MARK
from nmtdeep.text.tokenization import Moses, moses

# Moses' deescape-special-chars.perl; `&amp;` last, so that nothing is unescaped twice.
_ESCAPES = {
    "&bar;": "|", "&#124;": "|", "&lt;": "<", "&gt;": ">", "&bra;": "[", "&ket;": "]",
    "&quot;": '"', "&apos;": "'", "&#91;": "[", "&#93;": "]", "&amp;": "&",
}  # fmt: skip
_ESCAPE = re.compile("|".join(_ESCAPES))
# As in Moses' truecase.perl.
_ENDS = frozenset(".:?!")
_DELAYS = frozenset(["(", "[", '"', "'", "&apos;", "&quot;", "&#91;", "&#93;"])


@dataclass(frozen=True)
class Casing:
    """How words are spelt in truecased text: each spelling, and the commonest of each word."""

    known: frozenset[str]
    best: dict[str, str]

    @classmethod
    def of(cls, lines: Iterable[str]) -> Casing:
        """Counted in tokenized, truecased text."""
        counts: Counter[str] = Counter()
        for line in lines:
            counts.update(line.split())
        best: dict[str, str] = {}
        for word, count in counts.items():
            if word.lower() not in best or count > counts[best[word.lower()]]:
                best[word.lower()] = word
        return cls(frozenset(counts), best)

    def truecase(self, words: Sequence[str]) -> Iterator[str]:
        """Moses' truecase.perl: first words get their commonest spelling, unknown ones too."""
        first = True
        for word in words:
            if first or word not in self.known:
                yield self.best.get(word.lower(), word)
            else:
                yield word
            if word in _ENDS:
                first = True
            elif word not in _DELAYS:
                first = False


@dataclass
class Prepared:
    """Pairs that stay, and how many went for which reason."""

    pairs: list[Pair] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Prepare:
    """The steps of one output, for a chunk of pairs; runs in worker processes."""

    languages: tuple[str, str]
    steps: tuple[Step, ...]
    clean: Clean | None = None
    casings: tuple[Casing | None, Casing | None] = (None, None)

    def __call__(self, chunk: Sequence[RawPair]) -> Prepared:
        """One chunk."""
        result = Prepared()
        for raw in chunk:
            try:
                source, target = (
                    self._line(side, language, casing)
                    for side, language, casing in zip(
                        raw, self.languages, self.casings, strict=True
                    )
                )
            except UnicodeDecodeError:
                result.dropped["not valid UTF-8"] += 1
                continue
            reason = self._fault(source, target)
            if reason:
                result.dropped[reason] += 1
            else:
                result.pairs.append((source, target))
        return result

    def _fault(self, source: str, target: str) -> str | None:
        if not source and not target:
            return "both sides are empty"
        if self.clean is None:
            return None
        reason = fault(len(source.split()), len(target.split()), self.clean)
        return reason and reason.replace("subwords", "words")

    def _line(self, raw: bytes, language: str, casing: Casing | None) -> str:
        line = raw.decode("utf-8").lstrip(BYTE_ORDER_MARK)
        for step in self.steps:
            line = _apply(step, line, language, casing)
        return line


def _apply(step: Step, line: str, language: str, casing: Casing | None) -> str:
    match step:
        case "non_printing":
            return _printing(line)
        case "quotes":
            return line.replace("’", "'")
        case "unescape":
            return _ESCAPE.sub(lambda found: _ESCAPES[found[0]], line)
        case "normalize":
            return _words(language).normalize(line)
        case "tokenize":
            return " ".join(_words(language).tokenize(line))
        case "tokenize_hyphens":
            return " ".join(_words(language, aggressive_hyphens=True).tokenize(line))
        case "truecase":
            return line if casing is None else " ".join(casing.truecase(line.split()))


def _printing(line: str) -> str:
    """Moses' remove-non-printing-char.perl: a space for each control, format and such character."""
    if line.isprintable():
        return line
    return "".join(" " if unicodedata.category(one).startswith("C") else one for one in line)


def _words(language: str, *, aggressive_hyphens: bool = False) -> Moses | Jieba:
    if language == CHINESE:
        return jieba(aggressive_hyphens=aggressive_hyphens)
    return moses(language, aggressive_hyphens=aggressive_hyphens)


def check_available(languages: Sequence[str], steps: Iterable[Step]) -> None:
    """Raises UserError if a step needs a package that is not installed."""
    if CHINESE in languages and {"tokenize", "tokenize_hyphens"} & set(steps):
        try:
            jieba()
        except UserError as error:
            raise UserError(f"this corpus holds unsegmented Chinese. {error}") from None
