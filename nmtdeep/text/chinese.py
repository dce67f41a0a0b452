"""Tokenizing and detokenizing of Chinese text by jieba.

jieba splits Han characters and Chinese punctuation; Moses splits and joins everything else, such as
English names and numbers in digits. So a Chinese line without spaces comes back as it was, and no
space is ever inserted next to a Han character.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby

from nmtdeep.text.tokenization import Moses

CHINESE = "zh"
# Middle dot, dash, quotation marks and ellipsis as Chinese writes them; Han with its extensions,
# bopomofo, and CJK and full-width forms of punctuation, digits and letters.
_CHINESE = (
    "\u00b7\u2014\u2018\u2019\u201c\u201d\u2026"
    "\u2e80-\u2fdf\u3000-\u303f\u3100-\u312f\u31a0-\u31ef\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
)
# jieba's time for a run of words outside its dictionary grows with the square of its length.
_RUNS = re.compile(f"[{_CHINESE}]{{1,500}}|[^{_CHINESE}]+")
_IS_CHINESE = re.compile(f"[{_CHINESE}]")


class Jieba(Moses):
    """Normalize, tokenize and detokenize Chinese lines.

    Raises:
        ModuleNotFoundError: if jieba is not installed.
    """

    def __init__(self, *, aggressive_hyphens: bool = False) -> None:
        super().__init__("en", aggressive_hyphens=aggressive_hyphens)
        with warnings.catch_warnings(action="ignore"):  # jieba's own, about the age of its code
            from jieba import Tokenizer
        self._jieba = Tokenizer()
        # Read again: other users of the machine may write to jieba's cache.
        frequencies = self._jieba.gen_pfdict(self._jieba.get_dict_file())
        self._jieba.FREQ, self._jieba.total = frequencies
        self._jieba.initialized = True

    def tokenize(self, line: str) -> list[str]:
        words: list[str] = []
        for run in _RUNS.findall(line):
            if _IS_CHINESE.match(run):
                words += (word for word in self._jieba.lcut(run) if not word.isspace())
            else:
                words += super().tokenize(run)
        return words

    def detokenize(self, words: Sequence[str]) -> str:
        """One line: Chinese words side by side, words between them as Moses' detokenizer."""
        pieces = []
        for chinese, group in groupby(words, lambda word: bool(_IS_CHINESE.search(word))):
            run = list(group)
            pieces.append("".join(run) if chinese else super().detokenize(run))
        return "".join(pieces)


# This process's jieba: reading its dictionary takes a second.
jieba = lru_cache(maxsize=2)(Jieba)
