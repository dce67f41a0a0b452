"""Resuming the output file of an interrupted `translate`."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding import streams
from nmtdeep.decoding.translator import BUFFER
from nmtdeep.errors import UserError
from nmtdeep.text.lines import open_binary

HINT = "resume with the same input, models and options, or leave out --resume"
# How a line of each format names its input line, and the number of the first line.
NUMBERED = {
    "json": (re.compile(rb'\{"line": (\d+), '), 1),
    "tsv": (re.compile(rb"(\d+)\t"), 1),
    "fairseq": (re.compile(rb"[SHDP]-(\d+)\t"), 0),
    "text": (re.compile(rb"(\d+) \|\|\| "), 0),
}


@dataclass(frozen=True)
class ResumePoint:
    """The extent of an output file.

    A chunk of the input is batched together, so it is translated as a whole or not at all: only
    then is the output that of an uninterrupted command, byte for byte.

    Attributes:
        lines: input lines with output, the last one perhaps incomplete.
        first: input lines before the chunk of the last of them.
        start: byte at which the output of that chunk starts.
    """

    lines: int = 0
    first: int = 0
    start: int = 0


def resume_point(
    source: str, output: str, *, form: str, options: DecodingOptions, buffer: int = BUFFER
) -> ResumePoint:
    """The point to resume `output` at, a translation of `source`; 0 without a file.

    Raises:
        UserError: if it cannot be resumed, or the file is not a translation of this input.
    """
    path, what, hint = Path(output), "", ""
    if output == "-" or path.suffix == ".gz":
        what, hint = "needs a plain file", "pass --output FILE, not compressed"
    elif source == "-" or not Path(source).is_file():
        what, hint = "needs the whole input again", "pass --input FILE"
    elif options.sampling:
        what = "cannot be combined with --sampling, whose draws depend on earlier ones"
        hint = "leave one of them out"
    elif path.exists() and not path.is_file():
        what, hint = f"{output} is not a file", "choose another --output"
    if what:
        raise UserError(what, where="--resume", hint=hint)
    if not path.exists():
        return ResumePoint()
    numbered = form != "text" or options.n_best > 1
    sizes = map(len, streams.read_chunks(source, size=buffer))
    *starts, end = accumulate(sizes, initial=0)
    point = _read(path, form, numbered, {*starts})
    if point.lines > end:
        what = f"has output for {point.lines} lines, but {source} has {end}"
        raise UserError(what, where=output, hint=HINT)
    return point


def _read(path: Path, form: str, numbered: bool, starts: Container[int]) -> ResumePoint:
    """The point from the lines of the output, where `starts` are the first lines of chunks."""
    lines = first = start = place = 0
    pattern, base = NUMBERED[form]
    with open_binary(path) as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                break
            match = pattern.match(raw)
            number = lines if not numbered else int(match[1]) - base if match else -1
            if number < 0 or number not in (lines, lines - 1):
                what = f"was not written by --format {form} (after {lines} lines)"
                raise UserError(what, where=path, hint=HINT)
            if number == lines:
                lines += 1
                if number in starts:
                    first, start = number, place
            place += len(raw)
    return ResumePoint(lines, first, start)


@contextmanager
def writer(output: str, point: ResumePoint) -> Iterator[streams.Write]:
    """A function that writes the output of one chunk after the other, from `point.first` on.

    The first chunk must begin with the lines that the file has of it; an incomplete line is
    written again.

    Raises:
        UserError: if they differ, or the file cannot be written or is being written.
    """
    path = Path(output)
    with streams.writable(output), path.open("r+b" if path.exists() else "w+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = "wait for it, or choose another --output"
            raise UserError("another process is writing it", where=output, hint=hint) from error
        file.seek(point.start)
        existing = file.read()
        existing = existing[: existing.rfind(b"\n") + 1]
        file.seek(point.start)

        def write(text: str) -> None:
            nonlocal existing
            encoded = text.encode("utf-8")
            if not encoded.startswith(existing):
                lines = f"{point.first + 1} to {point.lines}"
                what = f"has other translations of input lines {lines}"
                raise UserError(what, where=output, hint=HINT)
            file.write(encoded)
            file.truncate()  # flushes, and removes an incomplete line
            existing = b""

        yield write
