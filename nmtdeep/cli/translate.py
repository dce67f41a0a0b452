"""`nmtdeep translate` and `nmtdeep serve`."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Literal

import typer
from typer import Option

from nmtdeep.cli.options import Bundle, Models, Overwrite, Quiet, decoding, flag, options_of
from nmtdeep.cli.outputs import REPLACE, refuse_existing
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.values import validated
from nmtdeep.errors import UserError
from nmtdeep.memory import bound_caches
from nmtdeep.tools.serve.limits import Limits
from nmtdeep.units import counted


def translate(
    *,
    model: Models,
    source: Annotated[str, Option("-i", "--input", metavar="FILE")] = "-",
    output: Annotated[str, Option("-o", "--output", metavar="FILE")] = "-",
    form: Annotated[Literal["text", "json", "tsv", "fairseq"], Option("--format")] = "text",
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
        resume: Continue --output after its last whole line.
    """
    bound_caches()  # before torch reads its settings
    from nmtdeep.decoding import resuming, streams
    from nmtdeep.decoding.translator import Translator
    from nmtdeep.devices import cores
    from nmtdeep.preprocessing.progress import Progress

    if resume and overwrite:
        raise UserError("excludes --resume", where="--overwrite", hint="leave one of them out")
    output = "-" if output == "/dev/stdout" else output
    lines = streams.check(source, output)
    hint = f"{REPLACE}, or --resume to continue it"
    refuse_existing(output, overwrite=overwrite or resume or output == "-", hint=hint)
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
        Progress("auto" if shown else "none").step("translate", lines) as advance,
    ):
        advance(done.first)
        count = streams.translate(
            translator, source, write, form=form, first=done.first, advance=advance
        )
    if not quiet:
        before, seconds = done.lines, time.perf_counter() - began
        rate = "" if typed else f", {(count - before) / max(seconds, 1e-9):.1f} lines/s"
        over_long, how = translator.cut_lines, options.long_lines
        typer.echo(
            f"{counted(count - before, 'line')} in {seconds:.1f} s{rate}"
            + (f", {over_long} over-long ({how})" if over_long else "")
            + (f", {before} were translated earlier" if before else ""),
            err=True,
        )


LIMITS = Bundle(options_of(Limits, "body_seconds"), lambda **given: validated(Limits, given, flag))


def serve(
    *,
    model: Models,
    host: str = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535)] = 8000,
    allow_host: Annotated[list[str] | None, Option(metavar="NAME")] = None,
    limits: Annotated[Limits, LIMITS],
    options: Annotated[DecodingOptions, decoding("processes")],
) -> None:
    """Translate over HTTP: a page to type into, and POST /translate for programs.

    SIGTERM or Ctrl-C: no new requests are accepted, those in progress are answered, then it ends.

    Args:
        host: Address to listen on; 0.0.0.0: all networks.
        port: Port to listen on; 0: any free one.
        allow_host: Name that requests may use for this service besides --host, such as a proxy's.
    """
    bound_caches()  # before torch reads its settings
    from nmtdeep.tools.serve.server import serve as serve_models

    serve_models(
        model,
        options,
        limits,
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        announce=lambda address: typer.echo(f"{address}: {', '.join(map(str, model))}"),
    )
