"""Pairs of lines out of the forms in which publishers give them, as bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from nmtdeep.errors import DataError
from nmtdeep.fetching.catalog import Part

RawPair = tuple[bytes, bytes]
# The longest line of the corpora is some tens of thousands of bytes.
LONGEST_LINE = 1 << 24
_SEGMENT = re.compile(rb"\s*<seg\b[^>]*>(.*)</seg>")
# Lines of IWSLT's training files that are no text, as fairseq's preparation drops them.
_ABOUT = (b"<url>", b"<talkid>", b"<keywords>")
_TAGS = re.compile(rb"</?(?:title|description)>")


def pairs(part: Part, files: list[Path]) -> Iterator[RawPair]:
    """Every pair of a part, without line ends.

    Args:
        part: what form the files have.
        files: unpacked, one for each of the part's.

    Raises:
        DataError: if the two sides have different numbers of lines, or a line is no such line.
    """
    if part.columns is not None:
        yield from _columns(files[0], part.columns)
        return
    read = _READERS[part.form]
    for number, (source, target) in enumerate(zip_longest(read(files[0]), read(files[1])), 1):
        if source is None or target is None:
            first, second = part.files
            raise DataError(
                f"{first if source is None else second} ends after {number - 1:,} lines, and "
                f"{second if source is None else first} goes on: they are not from one archive; "
                "delete what was downloaded and fetch it again"
            )
        yield source, target


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise DataError(f"{path}: a line of more than {LONGEST_LINE >> 20} MiB: not text")
            yield line.rstrip(b"\r\n")


def _segments(path: Path) -> Iterator[bytes]:
    """Text of SGML and XML test sets as sacreBLEU reads it: white space once, entities stay."""
    for line in _lines(path):
        if line.lstrip().startswith(b"<seg"):
            found = _SEGMENT.match(line)
            if found is None:
                raise DataError(f"{path}: a segment without its end: {line[:80]!r}")
            yield b" ".join(found[1].split())


def _iwslt(path: Path) -> Iterator[bytes]:
    for line in _lines(path):
        if not any(tag in line for tag in _ABOUT):
            yield _TAGS.sub(b"", line).strip()


def _columns(path: Path, columns: tuple[int, int]) -> Iterator[RawPair]:
    """Two columns of a table with tabs; a line with too few of them is an empty pair."""
    for line in _lines(path):
        cells = line.split(b"\t")
        whole = len(cells) > max(columns)
        yield (cells[columns[0]], cells[columns[1]]) if whole else (b"", b"")


_READERS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    "text": _lines,
    "sgm": _segments,
    "iwslt": _iwslt,
}
