"""`nmtdeep translate` and `nmtdeep serve`."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer
from typer import Option

from nmtdeep.cli.options import Bundle, Models, Quiet, decoding, flag, options_of
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.values import checked
from nmtdeep.serving.limits import Limits
from nmtdeep.units import counted

Format = Literal["text", "json", "tsv", "fairseq"]


def translate(
    *,
    model: Models,
    source: Annotated[str, Option("-i", "--input", metavar="FILE")] = "-",
    output: Annotated[str, Option("-o", "--output", metavar="FILE")] = "-",
    form: Annotated[Format, Option("--format")] = "text",
    resume: bool = False,
    quiet: Quiet = False,
    options: Annotated[DecodingOptions, decoding(processes="one per core for a long file")],
) -> None:
    """Translate raw text, line by line: N lines in, N lines out, in order.

    A line ends at a newline and nothing else; a blank line stays blank.

    Args:
        source: Text to translate, or .gz; -: stdin.
        output: File to write, or .gz; -: stdout.
        form: Output format.
        resume: Continue --output after its last whole line.
    """
    from nmtdeep.decoding import resuming, streams
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.devices import cores

    lines = streams.check(source, output)
    done = resuming.ResumePoint()
    if resume:
        done = resuming.resume_point(source, output, lines=lines, form=form, options=options)
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


LIMITS = Bundle(
    options_of(Limits, omit=["body_seconds"], panel="Limits"),
    lambda given: checked(Limits, given, flag),
)


def serve(
    *,
    model: Models,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8000,
    limits: Annotated[Limits, LIMITS],
    options: Annotated[DecodingOptions, decoding("processes")],
) -> None:
    """Translate over HTTP: a page to type into, and POST /translate for programs.

    SIGTERM or Ctrl-C: no new requests are accepted, those in progress are answered, then it ends.

    Args:
        host: Address to listen at; 0.0.0.0: every network.
        port: Port to listen at; 0: any free one.
    """
    from nmtdeep.serving.server import serve as serve_models

    try:
        serve_models(
            model,
            options,
            limits,
            host=host,
            port=port,
            announce=lambda address: typer.echo(f"{address}: {', '.join(map(str, model))}"),
        )
    except KeyboardInterrupt:  # the usual end of a service, after every request was answered
        raise typer.Exit(128 + signal.SIGINT) from None
