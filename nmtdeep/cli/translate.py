"""`nmtdeep translate`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from nmtdeep.cli.choices import InputForm, Verbose


class Format(StrEnum):
    """How translations are written."""

    text = "text"
    json = "json"
    tsv = "tsv"
    fairseq = "fairseq"


class LongLines(StrEnum):
    """What happens to lines over the limit."""

    pieces = "split"
    truncate = "truncate"
    error = "error"


class Quantisation(StrEnum):
    """Whole numbers in the place of weights."""

    INT8 = "int8"


class LengthPenalty(StrEnum):
    """The divisor of a hypothesis' log-probability."""

    gnmt = "gnmt"
    length = "length"
    none = "none"


def translate(
    model: Annotated[
        list[Path],
        typer.Option("-m", "--model", "--path", help="Run or checkpoint; several: an ensemble."),
    ],
    source: Annotated[str, typer.Option("-i", "--input", help="File, .gz too; - is stdin.")] = "-",
    output: Annotated[
        str, typer.Option("-o", "--output", help="File, .gz too; - is stdout.")
    ] = "-",
    beam: Annotated[
        int | None,
        typer.Option(
            "-b", "--beam", "--beam-size", min=1, help="Beam size [default: the recipe's]."
        ),
    ] = None,
    lenpen: Annotated[
        float | None,
        typer.Option(
            "--lenpen",
            "--length-penalty",
            "--alpha",
            min=0,
            help="A of the length penalty: gnmt ((5+len)/6)^A, length len^A.",
        ),
    ] = None,
    lenpen_form: Annotated[
        LengthPenalty | None, typer.Option(help="Which formula --lenpen belongs to.")
    ] = None,
    n_best: Annotated[
        int, typer.Option("--n-best", "--nbest", min=1, help="Translations of each line.")
    ] = 1,
    form: Annotated[Format, typer.Option("--format", help="text, json, tsv or fairseq.")] = (
        Format.text
    ),
    input_is: Annotated[
        InputForm | None, typer.Option(help="Input that is tokenised or BPE-split already.")
    ] = None,
    output_is: Annotated[
        InputForm, typer.Option(help="Text output: raw, tokenised words, or subwords.")
    ] = InputForm.RAW,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="Draw from the model instead of searching.")
    ] = False,
    temperature: Annotated[float, typer.Option(min=1e-3, help="Of --sampling.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Of --sampling; 0: all tokens.")] = 0,
    top_p: Annotated[float, typer.Option(min=1e-6, max=1.0, help="Of --sampling.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of --sampling.")] = 1,
    long_lines: Annotated[
        LongLines, typer.Option(help="Lines over --max-source-tokens: in pieces, cut, or refused.")
    ] = LongLines.pieces,
    max_source_tokens: Annotated[int | None, typer.Option(min=1, help="Longest source.")] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Padded source tokens times beam at once.")
    ] = 4096,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto (fp32), fp32, bf16 or fp16.")] = "auto",
    quantize: Annotated[
        Quantisation | None, typer.Option(help="int8: weights in whole numbers, on a CPU.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="That share the work on a CPU, one thread each.",
            show_default="one per core for a long file",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on in --output after its last whole line.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No summary on stderr.")] = False,
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
    with (
        opened as translator,
        resuming.writer(output, begun) if begun else streams.writer(output) as write,
    ):
        count = streams.translate(
            translator,
            source,
            write,
            form=form.value,
            output_form=options.output_is,
            first=begun.first if begun else 0,
        )
    if not quiet:
        note = f", {translator.cut_lines} over-long ({long_lines})" if translator.cut_lines else ""
        _say(count, begun.lines if begun else 0, time.perf_counter() - began, note)


def _say(count: int, before: int, seconds: float, note: str) -> None:
    """How many of `count` lines were translated now, and not by a command `before`."""
    made = count - before
    typer.echo(
        f"{made} line{'s' * (made != 1)} in {seconds:.1f} s, "
        f"{made / max(seconds, 1e-9):.1f} lines/s{note}"
        + (f", {before} more were there" if before else ""),
        err=True,
    )


def _processes(asked: int | None, *, threads: int | None, device: str, lines: int) -> int:
    """As many as asked for; else one for each core, where a file is worth their start."""
    from nmtdeep.data.parallel import cores
    from nmtdeep.decoding.settings import resolve_device
    from nmtdeep.decoding.streams import BUFFER

    if asked or threads or lines <= BUFFER or resolve_device(device).type != "cpu":
        return asked or 1
    return cores()
