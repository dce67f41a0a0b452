"""Parts of a line that Moses would tear apart are hidden from it and put back afterwards.

Moses pads every character that is neither a letter nor a number of its tables with spaces, and its
detokenizer puts few of them back. Hidden are URLs, addresses, placeholders, markup, emoji, marks,
joiners and other invisible characters. Each search takes linear time, whatever the line is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from sacremoses import MosesTokenizer
from sacremoses.corpus import Perluniprops
from sacremoses.util import CJKChars

from nmtdeep.text.tokenization import Moses

# Stands for a hidden part: a letter of Moses' tables, neither lower case nor upper case.
LETTER = "\ua66e"
_INVISIBLE = "\u00ad\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
_PLACEHOLDER = (
    r"%[({<][^(){}<>\s]+[)}>](?:[-+#0-9.]*[A-Za-z])?",  # %(name)s, %{name}, %<name>s
    r"(?<!\d)%(?:\d\$)?[-+#0]{0,4}\d{0,3}(?:\.\d{1,3})?(?:hh?|ll?|[qjztL])?[A-Za-z@%]",  # %1$.2f
    r"(?:(?<!\d)%\d\d?)(?:%\d\d?)*",  # %1
    r"[$#@]?\{{1,3}+(?: ?[^{}\s]++ ?|)\}{1,3}",  # {}, {0}, {name}, ${x}, {{ name }}
)
_VALUE = r"""=(?:"[^"<>]*+"|'[^'<>]*+'|[^\s"'<>=]++)"""
_MARKUP = (
    rf"</?\w[\w:.-]*+(?:\s++[\w:@.-]++{_VALUE}(?:\s++[\w:@.-]++(?:{_VALUE})?+)*+)?+\s*+/?>",
    r"&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});",
)
_ADDRESS = (
    r"(?<![A-Za-z0-9+.-])(?:[A-Za-z][A-Za-z0-9+.-]{1,20}+://|[wW]{3}\.)[!#-;=?-~\u00a1-\u052f]*"
    r"[\w/=&#%~$@+*-]",
    r"(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)++",
    r"(?<!\w)[@#]\w++",
)
# What Moses pads and its detokenizer leaves padded, next to such a part.
_ORPHANS = r"[/=*+~^|<>#@\\]{0,3}"


def _set(characters: Iterable[str]) -> str:
    """The content of a regular expression's set, as ranges."""
    codes = sorted(set(map(ord, characters)))
    runs = groupby(enumerate(codes), lambda each: each[1] - each[0])
    ranges = [[code for _, code in run] for _, run in runs]
    return "".join(f"\\U{run[0]:08x}-\\U{run[-1]:08x}" for run in ranges)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What a line without any hidden part does not have, and the parts to hide."""
    tables = Perluniprops()
    known = _set(MosesTokenizer.IsAlnum)
    symbols = set(tables.chars("Symbol")) - set(tables.chars("IsSo"))
    signs = {*tables.chars("Punctuation"), *symbols, *map(chr, range(33))} - {"_"}
    cjk = "".join(f"{chr(first)}-{chr(last)}" for first, last in CJKChars.ranges)
    sign = rf"[^{known}\s]"
    joined = rf"[^{known}{cjk}\s_{_set(signs)}]"
    glued = (
        rf"(?:(?![(\[{{\"'`„“¿¡]){sign}){{0,8}}{joined}(?:(?<=[{_INVISIBLE}]){sign}{{0,8}})?",
        "_+",
        LETTER,
    )
    core = f"(?:{'|'.join((*_ADDRESS, *_MARKUP, *_PLACEHOLDER, *glued))})"
    part = rf"{_ORPHANS}{core}(?:{sign}{{0,3}}{core})*{_ORPHANS}|(?<=\d)\xa0(?=\d)"
    spaces = {chr(code) for code in range(0x3001) if chr(code).isspace()}
    usual = {*MosesTokenizer.IsAlnum, *signs, *spaces} - {*"/%{<&@#\xa0", LETTER}
    return re.compile(rf"[^{_set(usual)}{cjk}]"), re.compile(part)


# Closing punctuation of scripts that Moses' detokenizer does not know.
_CLOSING = re.compile(
    " +(?=[\u061b\u061f\u060c\u06d4\u0964\u0965\u17d4-\u17d6\u104a\u104b\u1362-\u1368])"
)


def _around(line: str, process: Callable[[str], str]) -> str:
    """What `process` makes of a line while its parts are hidden; it keeps every letter in order."""
    unusual, part = _patterns()
    if not unusual.search(line) and "www." not in line.lower():
        return process(line)
    parts = iter(part.findall(line))
    return re.sub(LETTER, lambda _: next(parts), process(part.sub(LETTER, line)))


@dataclass(frozen=True)
class Protected:
    """A tokenizer that returns URLs, placeholders, markup and joined characters as they were.

    A no-break space between digits stays one when normalized; it becomes no decimal separator.
    """

    tokenizer: Moses

    def normalize(self, line: str) -> str:
        """As the tokenizer does, outside the parts."""
        return _around(line, self.tokenizer.normalize)

    def tokenize(self, line: str) -> list[str]:
        """Words; a part belongs to the word next to it, and is split at its spaces only."""
        return _around(line, lambda text: " ".join(self.tokenizer.tokenize(text))).split()

    def detokenize(self, words: Sequence[str]) -> str:
        """One line, with all parts as they are in the words."""
        line = _around(" ".join(words), lambda text: self.tokenizer.detokenize(text.split()))
        return _CLOSING.sub("", line)
