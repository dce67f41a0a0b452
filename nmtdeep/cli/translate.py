"""`nmtdeep translate`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from nmtdeep.cli import searching
from nmtdeep.cli.choices import InputForm, Verbose
from nmtdeep.cli.searching import LongLines
from nmtdeep.units import counted


class Format(StrEnum):
    """How translations are written."""

    text = "text"
    json = "json"
    tsv = "tsv"
    fairseq = "fairseq"


def translate(
    model: searching.Models,
    source: Annotated[
        str,
        typer.Option(
            "-i", "--input", metavar="FILE", help="Text to translate, or .gz; - is stdin."
        ),
    ] = "-",
    output: Annotated[
        str,
        typer.Option("-o", "--output", metavar="FILE", help="File to write, or .gz; - is stdout."),
    ] = "-",
    beam: searching.Beam = None,
    lenpen: searching.Lenpen = None,
    lenpen_form: searching.LenpenForm = None,
    n_best: searching.NBest = 1,
    form: Annotated[Format, typer.Option("--format", help="Output format.")] = (Format.text),
    input_is: searching.InputIs = None,
    output_is: searching.OutputIs = InputForm.RAW,
    sampling: searching.Sampling = False,
    temperature: searching.Temperature = 1.0,
    top_k: searching.TopK = 0,
    top_p: searching.TopP = 1.0,
    seed: searching.Seed = 1,
    long_lines: searching.OverLong = LongLines.pieces,
    max_source_tokens: searching.MaxSourceTokens = None,
    max_length_factor: searching.MaxLengthFactor = None,
    max_length_constant: searching.MaxLengthConstant = None,
    max_tokens: searching.MaxTokens = 4096,
    device: searching.Device = "auto",
    precision: searching.Precision = "auto",
    quantize: searching.Quantize = None,
    threads: searching.Threads = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of processes that share the work on a CPU, one thread each.",
            show_default="one per core for a long file",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue --output after its last whole line.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("-q", "--quiet", help="No progress and no summary on stderr.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Translate raw text, line by line: N lines in, N lines out, in order.

    A line ends at a newline and nothing else; a blank line stays blank.
    """
    import time

    from nmtdeep.decoding import resuming, streams
    from nmtdeep.decoding.opening import open_translator, options_of

    asked: dict[str, Any] = {
        "beam": beam,
        "lenpen": lenpen,
        "lenpen_form": lenpen_form and lenpen_form.value,
        "n_best": n_best,
        "input_is": input_is and input_is.value,
        "output_is": output_is.value,
        "sampling": sampling,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "long_lines": long_lines.value,
        "max_source_tokens": max_source_tokens,
        "max_length_factor": max_length_factor,
        "max_length_constant": max_length_constant,
        "max_tokens": max_tokens,
        "device": device,
        "precision": precision,
        "quantize": quantize and quantize.value,
        "threads": threads,
    }
    options_of(**asked, processes=processes or 1)
    lines = streams.check(source, output)
    written: dict[str, Any] = {"form": form.value, "n_best": n_best, "sampling": sampling}
    begun = resuming.begun(source, output, lines=lines, **written) if resume else None
    shared = _processes(processes, threads=threads, device=device, lines=lines)
    options = options_of(**asked, processes=shared)
    opened = open_translator(model, options)
    began = time.perf_counter()
    if source == "-" and sys.stdin.isatty() and not quiet:
        typer.echo("type a sentence and press Enter; Ctrl-D ends", err=True)
    first = begun.first if begun else 0
    with (
        opened as translator,
        resuming.writer(output, begun) if begun else streams.writer(output) as write,
        _progress(first, lines, output, quiet=quiet) as advance,
    ):
        count = streams.translate(
            translator,
            source,
            write,
            form=form.value,
            output_form=options.output_is,
            first=first,
            advance=advance,
        )
    if not quiet:
        note = f", {translator.cut_lines} over-long ({long_lines})" if translator.cut_lines else ""
        _say(count, begun.lines if begun else 0, time.perf_counter() - began, note)


@contextmanager
def _progress(
    first: int, lines: int, output: str, *, quiet: bool
) -> Iterator[Callable[[float], object]]:
    """What counts the lines of a file on a terminal that does not show the translations too."""
    mixed = output == "-" and sys.stdout.isatty()
    if quiet or mixed or not lines or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=lines, completed=first, rate="")

        def advance(count: float) -> None:
            bar.advance(task, count)
            shown = bar.tasks[0]
            made, seconds = shown.completed - first, shown.elapsed or 1e-9
            bar.update(task, rate=f"{made / seconds:.1f} lines/s")

        yield advance


def _say(count: int, before: int, seconds: float, note: str) -> None:
    """How many of `count` lines were translated now, and not by a command `before`."""
    made = count - before
    typer.echo(
        f"{counted(made, 'line')} in {seconds:.1f} s, "
        f"{made / max(seconds, 1e-9):.1f} lines/s{note}"
        + (f", {before} more were there" if before else ""),
        err=True,
    )


def _processes(asked: int | None, *, threads: int | None, device: str, lines: int) -> int:
    """As many as asked for; else one for each core, where a file is worth their start."""
    from nmtdeep.decoding.streams import BUFFER
    from nmtdeep.devices import cores, resolve_device

    if asked or threads or lines <= BUFFER or resolve_device(device).type != "cpu":
        return asked or 1
    return cores()
