"""`nmtdeep translate`."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from nmtdeep.cli.options import Models, Overwrite, Quiet, decoding
from nmtdeep.cli.outputs import REPLACE, refuse_existing
from nmtdeep.cli.start import imports
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.errors import UserError
from nmtdeep.memory import bound_caches
from nmtdeep.units import counted


def translate(
    *,
    model: Models,
    source: Annotated[str, Option("-i", "--input", metavar="FILE")] = "-",
    output: Annotated[str, Option("-o", "--output", metavar="FILE")] = "-",
    form: Annotated[Literal["text", "json", "tsv", "fairseq"], Option("--format")] = "text",
    alignments: Annotated[Path | None, Option(metavar="FILE")] = None,
    resume: bool = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    options: Annotated[DecodingOptions, decoding(processes="one per core for a long file")],
) -> None:
    """Translate raw text, line by line: N lines in, N lines out, in order.

    A line ends at a newline and nothing else; a blank line stays blank.

    Args:
        source: Text to translate, or .gz; -: stdin.
        output: File to write, or .gz; -: stdout.
        form: Output format.
        alignments: Also write which words belong together, as 0-0 1-2 (source-translation), a line
            for each line; --format json then has them too.
        resume: Continue --output after its last whole line.
    """
    bound_caches()  # before torch reads its settings
    with imports():
        from nmtdeep.decoding import resuming, streams
        from nmtdeep.decoding.translator import Translator
        from nmtdeep.devices import cores
        from nmtdeep.preprocessing.progress import ProgressBar

    for option, is_given in (("--alignments", alignments is not None), ("--overwrite", overwrite)):
        if resume and is_given:
            what, hint = "cannot be combined with --resume", "leave one of them out"
            raise UserError(what, where=option, hint=hint)
    output = "-" if output == "/dev/stdout" else output
    lines = streams.check(source, output, alignments)
    hint = f"{REPLACE}, or --resume to continue it"
    refuse_existing(output, overwrite=overwrite or resume or output == "-", hint=hint)
    if alignments is not None:
        refuse_existing(alignments, overwrite=overwrite)
    done = resuming.ResumePoint()
    if resume:
        done = resuming.resume_point(source, output, form=form, options=options)
    processes = streams.worker_processes(options, lines, cores())
    opened = Translator.load(model, options.model_copy(update={"processes": processes}))
    began = time.perf_counter()
    mixed = output == "-" and sys.stdout.isatty()  # a bar between translations
    shown = lines > 0 and sys.stderr.isatty() and not (quiet or mixed)
    typed = source == "-" and sys.stdin.isatty()
    if typed and not quiet:
        typer.echo("type a sentence and press Enter; Ctrl-D ends", err=True)
    with (
        opened as translator,
        resuming.writer(output, done) if resume else streams.writer(output) as write,
        streams.writer(str(alignments)) if alignments else nullcontext() as aligned,
        ProgressBar("auto" if shown else "none").step("translate", lines) as advance,
    ):
        advance(done.first)
        count = streams.translate(
            translator,
            source,
            streams.Destination(write, form, aligned),
            first=done.first,
            advance=advance,
        )
    if not quiet:
        before, seconds = done.lines, time.perf_counter() - began
        rate = "" if typed else f", {(count - before) / max(seconds, 1e-9):.1f} lines/s"
        over_long, how = translator.counts.cut, options.long_lines
        typer.echo(
            f"{counted(count - before, 'line')} in {seconds:.1f} s{rate}"
            + (f", {over_long} over-long ({how})" if over_long else "")
            + (f", {before} were translated earlier" if before else ""),
            err=True,
        )
