"""`nmtdeep translate`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import typer
from typer import Option

from nmtdeep.cli.options import Models, Quiet, decoding
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.units import counted

Format = Literal["text", "json", "tsv", "fairseq"]


@decoding(processes="one per core for a long file")
def translate(
    *,
    model: Models,
    source: str = Option(
        "-", "-i", "--input", metavar="FILE", help="Text to translate, or .gz; -: stdin."
    ),
    output: str = Option(
        "-", "-o", "--output", metavar="FILE", help="File to write, or .gz; -: stdout."
    ),
    form: Format = Option("text", "--format", help="Output format."),
    resume: bool = Option(False, "--resume", help="Continue --output after its last whole line."),
    quiet: Quiet = False,
    options: DecodingOptions,
) -> None:
    """Translate raw text, line by line: N lines in, N lines out, in order.

    A line ends at a newline and nothing else; a blank line stays blank.
    """
    from nmtdeep.decoding import resuming, streams
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.devices import cores

    lines = streams.check(source, output)
    n_best, sampling = options.n_best, options.sampling
    done = resuming.ResumePoint()
    if resume:
        done = resuming.resume_point(
            source, output, lines=lines, form=form, n_best=n_best, sampling=sampling
        )
    processes = streams.worker_processes(options, lines, cores())
    opened = Translator.load(model, options.model_copy(update={"processes": processes}))
    began = time.perf_counter()
    if source == "-" and sys.stdin.isatty() and not quiet:
        typer.echo("type a sentence and press Enter; Ctrl-D ends", err=True)
    with (
        opened as translator,
        resuming.writer(output, done) if resume else streams.writer(output) as write,
        _progress(done.first, lines, output, quiet=quiet) as advance,
    ):
        count = streams.translate(
            translator, source, write, form=form, first=done.first, advance=advance
        )
    if not quiet:
        before, seconds = done.lines, time.perf_counter() - began
        rate = (count - before) / max(seconds, 1e-9)
        over_long, how = translator.cut_lines, options.long_lines
        typer.echo(
            f"{counted(count - before, 'line')} in {seconds:.1f} s, {rate:.1f} lines/s"
            + (f", {over_long} over-long ({how})" if over_long else "")
            + (f", {before} were translated before" if before else ""),
            err=True,
        )


@contextmanager
def _progress(
    first: int, lines: int, output: str, *, quiet: bool
) -> Iterator[Callable[[float], object]]:
    """A bar that counts lines, on a terminal that does not show the translations too."""
    mixed = output == "-" and sys.stdout.isatty()
    if quiet or mixed or not lines or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress
    from rich.console import Console

    with progress.Progress(
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=lines, completed=first, rate="")

        def advance(count: float) -> None:
            bar.advance(task, count)
            done, seconds = bar.tasks[0].completed - first, bar.tasks[0].elapsed or 1e-9
            bar.update(task, rate=f"{done / seconds:.1f} lines/s")

        yield advance
