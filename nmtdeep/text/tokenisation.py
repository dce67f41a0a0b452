"""Moses' normaliser, tokeniser and detokeniser for one language (by sacremoses).

Nothing is ever XML-escaped: `&`, `|`, `<`, `[`, `'` and `"` stay what they are, both ways.

One difference from calling sacremoses line by line: Moses' Perl normaliser sees the line with its
newline, so that for German, Spanish and French its rule `."` -> `".` also acts at the end of the
line. We give sacremoses the newline too (measured on Multi30k: docs/preprocessing.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer


class Moses:
    """Normalise, tokenise and detokenise lines of one language."""

    def __init__(self, language: str, *, aggressive_hyphens: bool = False) -> None:
        self.language = language
        self.aggressive_hyphens = aggressive_hyphens
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)
        self._substitutions = [
            (re.compile(pattern), replacement)
            for pattern, replacement in MosesPunctNormalizer(lang=language).substitutions
        ]

    def normalise(self, line: str) -> str:
        """Moses' normalize-punctuation.perl: quotes, dashes, spaces around punctuation."""
        line += "\n"
        for pattern, replacement in self._substitutions:
            line = pattern.sub(replacement, line)
        return line.strip()

    def tokenise(self, line: str) -> list[str]:
        """Moses' tokenizer.perl -no-escape (and -a with aggressive hyphens): a list of words."""
        words: list[str] = self._tokenizer.tokenize(
            line, aggressive_dash_splits=self.aggressive_hyphens, escape=False
        )
        return words

    def detokenise(self, words: Sequence[str]) -> str:
        """Moses' detokenizer.perl, without unescaping: one line."""
        line: str = self._detokenizer.detokenize(words, unescape=False)
        return line


@lru_cache(maxsize=32)
def moses(language: str, *, aggressive_hyphens: bool = False) -> Moses:
    """This process's tokeniser of that language; building one takes milliseconds."""
    return Moses(language, aggressive_hyphens=aggressive_hyphens)
