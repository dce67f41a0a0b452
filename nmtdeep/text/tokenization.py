"""Moses' normalizer, tokenizer and detokenizer for one language (by sacremoses).

Nothing is XML-escaped: `&`, `|`, `<`, `[`, `'` and `"` stay what they are, both ways, unless a
recipe asks for it.

One difference from calling sacremoses line by line: Moses' Perl normalizer sees the line with its
newline, so that for German, Spanish and French its rule `."` -> `".` also acts at the end of the
line. We pass the newline to sacremoses too (measured on Multi30k: docs/text.md).

The time for any line grows linearly with its length, because of `_linear` and `_Tokenizer`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # joblib, which is not used, warns without /dev/shm
    from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer
    from sacremoses.corpus import NonbreakingPrefixes

# This pattern starts again at each full stop of a run, in quadratic time.
_STOPS_QUOTE = r'(\.+)"(\s*[^<])'
Substitution = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


def primary(language: str) -> str:
    """The language of a tag, without script and region: pt of pt-BR."""
    return language.partition("-")[0]


def is_known(language: str) -> bool:
    """Whether Moses has rules for a language tag."""
    return primary(language) in NonbreakingPrefixes().available_langs


class Moses:
    """Normalize, tokenize and detokenize lines of one language."""

    def __init__(
        self, language: str, *, aggressive_hyphens: bool = False, escape: bool = False
    ) -> None:
        self.language = language
        self.aggressive_hyphens = aggressive_hyphens
        self.escape = escape
        self._tokenizer = _Tokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)
        if language == "cs":
            # sacremoses uses it once, for words before "-li", and raises a TypeError there.
            self._detokenizer.IS_FRENCH_CONRTACTION = re.compile("(?!)")
        self._substitutions = [
            _linear(pattern, replacement)
            for pattern, replacement in MosesPunctNormalizer(lang=language).substitutions
        ]

    def normalize(self, line: str) -> str:
        """Moses' normalize-punctuation.perl: quotes, dashes, spaces around punctuation."""
        line += "\n"
        for pattern, replacement in self._substitutions:
            line = pattern.sub(replacement, line)
        return line.strip()

    def tokenize(self, line: str) -> list[str]:
        """Moses' tokenizer.perl (-no-escape without `escape`, -a with aggressive hyphens)."""
        hyphens = self.aggressive_hyphens
        return self._tokenizer.tokenize(line, aggressive_dash_splits=hyphens, escape=self.escape)

    def detokenize(self, words: Sequence[str]) -> str:
        """Moses' detokenizer.perl, which undoes `escape`: one line."""
        return self._detokenizer.detokenize(words, unescape=self.escape)


def _linear(pattern: str, replacement: str) -> Substitution:
    """A substitution of sacremoses, or an equal one where sacremoses' is slow on long runs."""
    if pattern != _STOPS_QUOTE:
        return re.compile(pattern), replacement
    return (
        re.compile(r'(\.+)(?:"(\s*[^<]))?'),
        lambda match: match[0] if match[2] is None else f'"{match[1]}{match[2]}',
    )


class _Tokenizer(MosesTokenizer):  # type: ignore[misc]  # sacremoses has no types
    """Keeps the sets of characters, which sacremoses builds for each word with a full stop."""

    lower = frozenset(MosesTokenizer.IsLower)
    alpha = frozenset(MosesTokenizer.IsAlpha)

    def islower(self, text: str) -> bool:
        return self.lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self.alpha.isdisjoint(text)


# This process's tokenizers by language: building one takes milliseconds.
moses = lru_cache(maxsize=32)(Moses)
