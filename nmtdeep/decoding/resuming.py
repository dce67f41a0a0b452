"""An output file that an interrupted `translate` left behind, and how to go on in it."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nmtdeep.decoding import streams
from nmtdeep.errors import UserError
from nmtdeep.text.files import open_binary

HINT = "resume with the input, models and options that it was begun with, or leave out --resume"
# How a line of each format names its input line; the second figure is the number of the first one.
NUMBERED = {
    "json": (re.compile(rb'\{"line": (\d+), '), 1),
    "tsv": (re.compile(rb"(\d+)\t"), 1),
    "fairseq": (re.compile(rb"[SHDP]-(\d+)\t"), 0),
    "text": (re.compile(rb"(\d+) \|\|\| "), 0),
}


@dataclass(frozen=True)
class Begun:
    """How far an output file is.

    Batches are made of a chunk of the input, so that a chunk is translated as a whole or not at
    all: only then is the output that of an uninterrupted command, byte for byte.

    Attributes:
        lines: input lines that it answers, the last one perhaps in part.
        first: input lines before the chunk that the last of them is in.
        start: byte where the output of that chunk starts.
    """

    lines: int = 0
    first: int = 0
    start: int = 0


def begun(source: str, output: str, *, lines: int, form: str, n_best: int, sampling: bool) -> Begun:
    """How far `output` is with the `lines` lines of `source`; not at all if there is no such file.

    Raises:
        UserError: where nobody can go on, or the file is no translation of this input.
    """
    path = Path(output)
    if output == "-" or path.suffix == ".gz":
        raise UserError("--resume goes on in a plain file: give --output FILE, not packed")
    if source == "-" or not Path(source).is_file():
        raise UserError("--resume needs the whole input again: give --input FILE")
    if sampling:
        raise UserError(
            "--resume cannot go on with --sampling, where a draw depends on those before it: leave "
            "one of them out"
        )
    if not path.exists():
        return Begun()
    if not path.is_file():
        raise UserError(f"{output} is no file to go on in: choose another --output")
    found = _read(path, form, n_best)
    if found.lines > lines:
        raise UserError(f"{output} answers {found.lines} lines, and {source} has {lines}: {HINT}")
    return found


def _read(path: Path, form: str, n_best: int) -> Begun:
    found, place = Begun(), 0
    numbered = NUMBERED[form] if form != "text" or n_best > 1 else None
    with open_binary(path) as file:
        for raw in file:
            if not raw.endswith(b"\n"):
                break
            number = _number(raw, *numbered) if numbered else found.lines
            if number not in (found.lines, found.lines - 1):
                raise UserError(
                    f"{path} is not what --format {form} writes (after {found.lines} lines): {HINT}"
                )
            if number == found.lines:
                starts_chunk = number % streams.BUFFER == 0
                first, start = (number, place) if starts_chunk else (found.first, found.start)
                found = Begun(number + 1, first, start)
            place += len(raw)
    return found


def _number(raw: bytes, pattern: re.Pattern[bytes], base: int) -> int | None:
    """The input line, counted from 0, that a line of output says it belongs to."""
    match = pattern.match(raw)
    return int(match[1]) - base if match else None


@contextmanager
def writer(output: str, begun: Begun) -> Iterator[streams.Write]:
    """A function that takes the output of one chunk after the other, from `begun.first` on.

    What stands in the file already must be how the first chunk begins; a line that was cut off is
    written anew.

    Raises:
        UserError: if the file was made in another way, cannot be written, or is being written.
    """
    path = Path(output)
    with streams.writable(output), path.open("r+b" if path.exists() else "w+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"another process goes on in {output}: wait for it, or choose another --output"
            ) from error
        file.seek(begun.start)
        there = file.read()
        there = there[: there.rfind(b"\n") + 1]
        if not there:
            file.truncate(begun.start)
        file.seek(begun.start + len(there))

        def write(text: str) -> None:
            nonlocal there
            made = text.encode("utf-8")
            if not made.startswith(there):
                raise UserError(
                    f"{output} holds other translations of input lines {begun.first + 1} to "
                    f"{begun.lines}: {HINT}"
                )
            if there:
                file.truncate()
            file.write(made[len(there) :])
            file.flush()
            there = b""

        yield write
