"""Reading lines and writing translations, of files or of streams that are answered line by line."""

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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from nmtdeep import memory
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.parallel import lookahead
from nmtdeep.decoding.translation import Translation
from nmtdeep.decoding.translator import BUFFER, CHARACTERS, Translator, line_chunks
from nmtdeep.devices import resolve_device
from nmtdeep.errors import UserError
from nmtdeep.files import cannot_write
from nmtdeep.text.lines import read_lines

WAIT = 0.05  # seconds without a new line after which a stream is answered
RELEASE = 64_000  # lines after which free memory is returned to the system
Write = Callable[[str], object]


@contextmanager
def writer(output: str) -> Iterator[Write]:
    """A function that writes text to a file, a .gz file, or stdout (`-`), and flushes it.

    Raises:
        UserError: if the file cannot be written or the disk is full.
    """
    if output == "-":
        # This file has a buffer. Without one (PYTHONUNBUFFERED) Python drops the rest of a text of
        # which a pipe took a part, and does not notice that the reader has left.
        with open(sys.stdout.fileno(), "w", encoding="utf-8", newline="", closefd=False) as file:
            yield partial(print, end="", file=file, flush=True)
        return
    opened = gzip.open if output.endswith(".gz") else open
    with writable(output), opened(output, "wt", encoding="utf-8", newline="") as file:
        yield partial(print, end="", file=file, flush=True)


@contextmanager
def writable(output: str) -> Iterator[None]:
    """Raise a UserError, instead of an OSError, if the block cannot write."""
    try:
        yield
    except OSError as error:
        raise cannot_write(Path(output), error, kept=False) from error


def check(source: str, output: str, alignments: Path | None = None) -> int:
    """Read a file through before anything is translated or overwritten.

    Returns:
        Its number of lines; 0 for a pipe, whose number is unknown.

    Raises:
        UserError: if it is missing or not UTF-8, if a file that is written would replace it or is
            one of the others, or cannot be written in its form.
    """
    files = {} if output == "-" else {"--output": Path(output)}
    if alignments is not None:
        files["--alignments"] = alignments
    for option, file in files.items():
        if file.is_dir():
            raise UserError("is a directory", where=file, hint=f"name a file in it by {option}")
        if file.suffix == ".zst":
            hint = "name a .gz file, or write to stdout and pipe it to zstd"
            raise UserError("cannot be written as .zst", where=file, hint=hint)
    if len({file.resolve() for file in files.values()}) < len(files):
        raise UserError("is the output too", where=alignments, hint="choose another --alignments")
    path = Path(source)
    if source == "-" or not _is_regular(path):
        return 0
    count = sum(1 for _ in read_lines(path, empty="allow"))
    for option, file in files.items():
        if file.exists() and path.samefile(file):
            raise UserError("is the input too", where=file, hint=f"choose another {option}")
    return count


def _is_regular(source: Path) -> bool:
    """Whether it is a file, or missing, and no pipe or terminal."""
    return not (source.is_fifo() or source.is_char_device())


def read_chunks(source: str, *, first: int = 0, size: int = BUFFER) -> Iterator[list[str]]:
    """Input lines in chunks to batch together, without the `first` lines of a file.

    Files come in `line_chunks`, so that a translation does not depend on timing. A pipe or terminal
    yields the lines that have arrived, so that a line is answered before the end.
    """
    stream: Path | BinaryIO = Path(source)
    if source == "-":
        # A buffer of its own: Python closes that of `sys.stdin` at exit, and crashes if a thread
        # still waits in it.
        raw = io.FileIO(os.dup(sys.stdin.fileno()))
        raw.name = sys.stdin.name
        stream = io.BufferedReader(raw)
    lines = islice(read_lines(stream, empty="allow"), first, None)
    if _is_answered(source):
        yield from _arriving(lines, size)
        return
    yield from line_chunks(lines, size)


def _is_answered(source: str) -> bool:
    """Whether a program may wait for the answer to a line before it sends the next one."""
    if source != "-":
        return not _is_regular(Path(source))
    return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)


def _arriving(lines: Iterator[str], size: int) -> Iterator[list[str]]:
    """The lines that a reading thread has gathered, in chunks as those of `line_chunks`."""
    arrived: queue.Queue[str | BaseException | None] = queue.Queue(maxsize=2 * size)
    put = taken = 0  # characters; each number is written by one thread

    def read() -> None:
        nonlocal put
        try:
            for line in lines:
                while put - taken >= CHARACTERS:
                    time.sleep(WAIT)
                put += len(line)
                arrived.put(line)
            arrived.put(None)
        except BaseException as error:
            arrived.put(error)

    threading.Thread(target=read, daemon=True).start()
    item: str | BaseException | None = ""
    while item is not None:
        chunk: list[str] = []
        before, item = taken, arrived.get()
        with suppress(queue.Empty):
            while isinstance(item, str):
                chunk.append(item)
                taken += len(item)
                if len(chunk) == size or taken - before >= CHARACTERS:
                    break
                item = arrived.get(timeout=WAIT)
        if chunk:
            yield chunk
        if isinstance(item, BaseException):
            raise item


def worker_processes(options: DecodingOptions, lines: int, cores: int) -> int:
    """`options.processes` if it was set; else one per core, if a file is long enough."""
    chosen = {"processes", "threads"} & options.model_fields_set
    if chosen or lines <= BUFFER or resolve_device(options.device).type != "cpu":
        return options.processes
    return cores


class Destination(NamedTuple):
    """Where translations go.

    Attributes:
        write: called with the output of a whole chunk.
        form: output format, see `render`.
        aligned: called with the alignments of a chunk, a line each; None: there are none.
    """

    write: Write
    form: str
    aligned: Write | None = None


def translate(
    translator: Translator,
    source: str,
    output: Destination,
    *,
    first: int = 0,
    advance: Callable[[float], object] = lambda _: None,
    buffer: int = BUFFER,
) -> int:
    """Translate `source` (a path or `-`) line by line; returns the number of lines.

    Args:
        first: number of lines of a file to leave out, whole chunks of it.
        advance: as in `Translator.begin`.
    """
    translator.restart(first)
    count, options = first, translator.options
    lines = read_chunks(source, first=first, size=buffer)
    begun = (translator.begin(chunk, advance) for chunk in lines)
    for end in lookahead(begun, 0 if _is_answered(source) else translator.prefetch):
        translations = end()
        if output.aligned is not None:
            from nmtdeep.decoding.alignment import align, pharaoh

            translations = align(translator, translations)
            found = (each.candidates[0].alignment or () for each in translations)
            output.aligned("".join(f"{pharaoh(each)}\n" for each in found))
        numbered = enumerate(translations, count)
        lines_of = (render(each, number, output.form, options) for number, each in numbered)
        output.write("".join(lines_of))
        before, count = count, count + len(translations)
        if count // RELEASE > before // RELEASE:
            memory.give_back()
    return count


def render(translation: Translation, number: int, form: str, options: DecodingOptions) -> str:
    """The translations of a line in the format text, json, tsv or fairseq, each line ended.

    fairseq: S- source subwords, H- score and subwords, D- detokenized, P- log-probability by token.
    text has number and score too if several candidates are wanted.
    """
    candidates = translation.candidates
    if form == "json":
        names = ["text", "tokenized", "subwords", "score", "log_prob"]
        names += ["utility"] if candidates[0].utility is not None else []
        values = [{name: getattr(candidate, name) for name in names} for candidate in candidates]
        if candidates[0].alignment is not None:
            values[0]["alignment"] = candidates[0].alignment
        record = {"line": number + 1, "source": translation.source, "translations": values}
        return json.dumps(record, ensure_ascii=False) + "\n"
    lines = [f"S-{number}\t{' '.join(translation.subwords)}"] if form == "fairseq" else []
    for rank, candidate in enumerate(candidates, 1):
        text = candidate.as_text(options.output_is)
        if form == "tsv":
            lines.append(
                f"{number + 1}\t{rank}\t{candidate.score:.6f}\t{candidate.log_prob:.6f}\t{text}"
            )
        elif form == "fairseq":  # to base 2, as fairseq prints scores and log-probabilities
            score = candidate.score / math.log(2)
            lines.append(f"H-{number}\t{score}\t{' '.join(candidate.subwords)}")
            lines.append(f"D-{number}\t{score}\t{candidate.text}")
            each = [f"{value / math.log(2):.4f}" for value in candidate.each]
            lines.append(f"P-{number}\t{' '.join(each)}")
        else:
            many = options.n_best > 1
            lines.append(f"{number} ||| {text} ||| {candidate.score:.6f}" if many else text)
    return "".join(f"{line}\n" for line in lines)
