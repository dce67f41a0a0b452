"""`nmtdeep export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.cli.outputs import as_typed
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.export.comparison import ExportCheck

# Exit code of a command that wrote a model that is worse, or the card of one without its weights.
INCOMPLETE = 3


class Program(StrEnum):
    """What is to read the model."""

    CTRANSLATE2 = "ctranslate2"
    HUGGINGFACE = "huggingface"


class Quantization(StrEnum):
    """How CTranslate2 stores weights."""

    INT8 = "int8"
    INT8_FLOAT32 = "int8_float32"
    INT8_FLOAT16 = "int8_float16"
    INT8_BFLOAT16 = "int8_bfloat16"
    INT16 = "int16"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory or checkpoint.")],
    to: Annotated[Program, typer.Option("--to", help="Which program is to read it.")],
    out: Annotated[Path, typer.Option("-o", "--out", "--output", help="Directory to write.")],
    quantization: Annotated[
        Quantization | None,
        typer.Option(help="ctranslate2: number format of the weights.", show_default="float32"),
    ] = None,
    check: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="SOURCE REFERENCE",
            help="ctranslate2: translate with both programs and compare BLEU and speed.",
        ),
    ] = None,
    max_loss: Annotated[
        float,
        typer.Option(min=0, help="BLEU that may be lost in --check; exit code 3 if more is."),
    ] = 0.1,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads of --check.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an export that is there.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Write a model for another program: CTranslate2, or Hugging Face's transformers.

    Beside the weights stand the text pipeline and a README.md that says how to use them.
    """
    if to is Program.HUGGINGFACE:
        _refuse(quantization=quantization, check=check, threads=threads)
        _to_huggingface(run, out, overwrite=overwrite)
        return
    from nmtdeep.export.exporter import export_ctranslate2
    from nmtdeep.scoring.texts import read_texts
    from nmtdeep.units import size

    texts = read_texts(check[0], [check[1]], [], None) if check else None
    done = export_ctranslate2(
        run, out, quantization=quantization and quantization.value, overwrite=overwrite
    )
    typer.echo(
        f"{out}: {as_typed(run, done.checkpoint)} for CTranslate2, {quantization or 'float32'}, "
        f"{size(done.after)} in all; its weights were {size(done.before)}"
    )
    if texts is None:
        return
    from nmtdeep.export.comparison import check_export

    found = check_export(done.checkpoint, out, texts, threads=threads)
    _show(found)
    if found.loss > max_loss:
        hint = "choose another --quantization, or none" if quantization else "report it as a fault"
        typer.echo(
            f"nmtdeep: the exported model is worse: it lost {found.loss:.2f} BLEU, more than "
            f"--max-loss {max_loss:g}; {out} is there all the same: {hint}",
            err=True,
        )
        raise typer.Exit(INCOMPLETE)


def _refuse(**given: object) -> None:
    if names := [f"--{name}" for name, value in given.items() if value is not None]:
        raise UserError(f"{' and '.join(names)} only goes with --to ctranslate2: leave it out")


def _to_huggingface(run: Path, out: Path, *, overwrite: bool) -> None:
    from nmtdeep.export.exporter import export_huggingface

    done = export_huggingface(run, out, overwrite=overwrite)
    model = as_typed(run, done.checkpoint)
    if not done.problems:
        typer.echo(f"{out}: {model} as a MarianMT of transformers, and its model card")
        return
    typer.echo(
        f"nmtdeep: {out} has a model card and no weights: transformers has no class for {model} "
        f"({'; '.join(map(str, done.problems))}): translate with nmtdeep, or try --to ctranslate2",
        err=True,
    )
    raise typer.Exit(INCOMPLETE)


def _show(found: ExportCheck) -> None:
    """Both programs' figures, and how they were measured."""
    from rich.console import Console

    from nmtdeep.tables import table
    from nmtdeep.units import percent

    columns = {"program": "left", "BLEU": "right", "sentences/s": "right", "numbers": "left"}
    rows = [
        (one.name, f"{one.score.value:.2f}", f"{one.speed:.1f}", one.numbers)
        for one in (found.before, found.after)
    ]
    Console().print(table(columns, rows))
    lines = len(found.before.lines)
    typer.echo(f"equal translations: {found.equal} of {lines} ({percent(found.equal / lines)})")
    typer.echo(f"BLEU: {found.before.score.signature}")
    typer.echo(
        f"sentences/s: from text to text on the CPU, threads: {found.threads}, beam {found.beam}, "
        "one program after the other, with the same batches"
    )
