"""Pairs of lines, as bytes, out of the file formats of the publishers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from nmtdeep.errors import DataError
from nmtdeep.tools.fetch.catalog import ParallelFiles

RawPair = tuple[bytes, bytes]
# The longest line of the corpora has some tens of thousands of bytes.
LONGEST_LINE = 1 << 24
_SEGMENT = re.compile(rb"\s*<seg\b[^>]*>(.*)</seg>")
# Lines of IWSLT's training files that are metadata, which fairseq's preparation drops.
_METADATA = (b"<url>", b"<talkid>", b"<keywords>")
_TAGS = re.compile(rb"</?(?:title|description)>")
_HINT = "delete the archive and run the same command again"


def read_pairs(text: ParallelFiles, files: list[Path]) -> Iterator[RawPair]:
    """Every pair of a parallel text, without line ends.

    Args:
        text: its format.
        files: unpacked, one for each of the text's.

    Raises:
        DataError: if the two sides have different numbers of lines, or a line is malformed.
    """
    if text.columns is not None:
        first, second = text.columns
        for line in _lines(files[0]):
            cells = line.split(b"\t")
            # A line with too few cells is an empty pair, which preparation drops and counts.
            complete = len(cells) > max(first, second)
            yield (cells[first], cells[second]) if complete else (b"", b"")
        return
    read = _READERS[text.form]
    for number, (source, target) in enumerate(zip_longest(read(files[0]), read(files[1])), 1):
        if source is None or target is None:
            short, long = text.files if source is None else reversed(text.files)
            what = f"ends after {number - 1:,} lines, but {long} continues"
            raise DataError(what, where=short, hint=_HINT)
        yield source, target


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while line := stream.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                what = f"a line of more than {LONGEST_LINE >> 20} MiB: not text"
                raise DataError(what, where=path, hint=_HINT)
            yield line.rstrip(b"\r\n")


def _segments(path: Path) -> Iterator[bytes]:
    """Text of SGML and XML test sets as sacreBLEU reads it: white space merged, entities kept."""
    for line in _lines(path):
        if line.lstrip().startswith(b"<seg"):
            match = _SEGMENT.match(line)
            if match is None:
                raise DataError(f"a segment without its end: {line[:80]!r}", where=path, hint=_HINT)
            yield b" ".join(match[1].split())


def _iwslt(path: Path) -> Iterator[bytes]:
    for line in _lines(path):
        if not any(tag in line for tag in _METADATA):
            yield _TAGS.sub(b"", line).strip()


_READERS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    "text": _lines,
    "sgm": _segments,
    "iwslt": _iwslt,
}
