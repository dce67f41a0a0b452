"""Lines in and translations out, as files or as a stream that answers while it is read."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import queue
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO

from nmtdeep import memory
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.text import Form
from nmtdeep.decoding.translator import Candidate, Translation, Translator
from nmtdeep.devices import resolve_device
from nmtdeep.errors import UserError
from nmtdeep.text.files import read_lines

BUFFER = 4000
PATIENCE = 0.05
GIVE_BACK = 64_000  # lines after which memory that lies free is given back
Write = Callable[[str], object]


@contextmanager
def writer(output: str) -> Iterator[Write]:
    """A function that writes text to a file, a .gz file, or stdout (`-`), and keeps nothing back.

    Raises:
        UserError: if the file cannot be written or the disk is full.
    """
    if output == "-":
        # A buffer of its own: without one (PYTHONUNBUFFERED) Python drops the rest of a text of
        # which a pipe took a part, and does not notice that the reader has left.
        with open(sys.stdout.fileno(), "w", encoding="utf-8", newline="", closefd=False) as file:
            yield partial(_put, file)
        return
    opened = gzip.open if output.endswith(".gz") else open
    with writable(output), opened(output, "wt", encoding="utf-8", newline="") as file:
        yield partial(_put, file)


def _put(file: IO[str], text: str) -> None:
    file.write(text)
    file.flush()


@contextmanager
def writable(output: str) -> Iterator[None]:
    """Where the block cannot write, say so.

    Raises:
        UserError: in the place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {output}: {error.strerror or error}: make room or choose another "
            "--output"
        ) from error


def check(source: str, output: str) -> int:
    """Read a file through before anything is translated or overwritten.

    Returns:
        How many lines it has; 0 if nobody knows because it is a pipe.

    Raises:
        UserError: if it is missing or not UTF-8, or if the output would take its place.
    """
    if output != "-" and Path(output).is_dir():
        raise UserError(f"{output} is a directory: name a file in it by --output")
    path = Path(source)
    if source == "-" or path.is_fifo() or path.is_char_device():
        return 0
    count = sum(1 for _ in read_lines(path, empty="allow"))
    if output != "-" and Path(output).exists() and path.samefile(output):
        raise UserError(f"{output} is the input too: choose another --output")
    return count


def chunks(source: str, *, first: int = 0) -> Iterator[list[str]]:
    """Input lines in chunks to batch together, without the `first` lines of a file.

    Files come in chunks of a fixed size, so that a translation does not depend on timing. A pipe or
    terminal gives what has arrived, so that a line is answered without waiting for the end.
    """
    given = _stdin() if source == "-" else Path(source)
    lines = islice(read_lines(given, empty="allow"), first, None)
    if source != "-" or stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode):
        chunk: list[str] = []
        for line in lines:
            chunk.append(line)
            if len(chunk) == BUFFER:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
        return
    yield from _arriving(lines)


def _stdin() -> BinaryIO:
    """Stdin with a buffer of its own.

    Python closes that of `sys.stdin` when it ends, and dies of a thread that still waits in it.
    """
    raw = io.FileIO(os.dup(sys.stdin.fileno()))
    raw.name = sys.stdin.name
    return io.BufferedReader(raw)


def _arriving(lines: Iterator[str]) -> Iterator[list[str]]:
    """What a reading thread has gathered, at most BUFFER lines at a time."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * BUFFER)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    while True:
        chunk: list[str] = []
        item = arrived.get()
        while isinstance(item, str):
            chunk.append(item)
            if len(chunk) == BUFFER:
                break
            try:
                item = arrived.get(timeout=PATIENCE)
            except queue.Empty:
                break
        if chunk:
            yield chunk
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return


def worker_processes(options: DecodingOptions, lines: int, cores: int) -> int:
    """As many as asked for; else one per core, if a file is long enough to be worth their start."""
    given = {"processes", "threads"} & options.model_fields_set
    if given or lines <= BUFFER or resolve_device(options.device).type != "cpu":
        return options.processes
    return cores


def translate(
    translator: Translator,
    source: str,
    write: Write,
    *,
    form: str,
    output_form: Form,
    first: int = 0,
    advance: Callable[[float], object] = lambda _: None,
) -> int:
    """Translate `source` (a path or `-`) line by line; returns the number of lines.

    Args:
        write: gets the output of a whole chunk at a time.
        first: lines of a file that are left out, whole chunks of it.
        advance: as in `Translator.translate_chunk`.
    """
    count = first
    translator.skip(first)
    given_back = count
    for chunk in chunks(source, first=first):
        found = enumerate(translator.translate_chunk(chunk, advance), count)
        write("".join(render(one, number, form, output_form) for number, one in found))
        count += len(chunk)
        if count - given_back >= GIVE_BACK:
            memory.give_back()
            given_back = count
    return count


def render(translation: Translation, number: int, form: str, output_form: Form) -> str:
    """One line's translations in the asked format, each line ended."""
    candidates = translation.candidates
    match form:
        case "json":
            each = [
                {
                    "text": one.text,
                    "tokenized": one.tokenized,
                    "subwords": one.subwords,
                    "score": one.score,
                    "log_prob": one.log_prob,
                }
                for one in candidates
            ]
            record = {"line": number + 1, "source": translation.source, "translations": each}
            return json.dumps(record, ensure_ascii=False) + "\n"
        case "tsv":
            return "".join(
                f"{number + 1}\t{rank}\t{one.score:.6f}\t{one.log_prob:.6f}\t"
                f"{shown(one, output_form)}\n"
                for rank, one in enumerate(candidates, 1)
            )
        case "fairseq":
            return _fairseq(translation, number)
    if len(candidates) == 1:
        return shown(candidates[0], output_form) + "\n"
    return "".join(
        f"{number} ||| {shown(one, output_form)} ||| {one.score:.6f}\n" for one in candidates
    )


def shown(candidate: Candidate, form: Form) -> str:
    """A translation as raw text, as words, or as subwords."""
    if form == "raw":
        return candidate.text
    return candidate.tokenized if form == "tokenized" else " ".join(candidate.subwords)


def _fairseq(translation: Translation, number: int) -> str:
    """S- source subwords, H- score and subwords, D- detokenized, P- log-probability by token.

    Scores and log-probabilities are to base 2, as fairseq prints them.
    """
    lines = [f"S-{number}\t{' '.join(translation.subwords)}"]
    for one in translation.candidates:
        lines.append(f"H-{number}\t{one.score / math.log(2)}\t{' '.join(one.subwords)}")
        lines.append(f"D-{number}\t{one.score / math.log(2)}\t{one.text}")
        lines.append(f"P-{number}\t{' '.join(f'{value / math.log(2):.4f}' for value in one.each)}")
    return "\n".join(lines) + "\n"
