"""`nmtdeep export`: a model for another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from nmtdeep.cli import options
from nmtdeep.errors import UserError
from nmtdeep.tools.export import Quantization

if TYPE_CHECKING:
    from nmtdeep.scoring.texts import Texts
    from nmtdeep.tools.export.comparison import ExportCheck

# Exit code if the written model is worse.
WORSE = 3


def export(
    run: options.Run,
    *,
    to: Literal["ctranslate2", "huggingface", "firefox"],
    out: options.Out,
    quantization: Quantization | None = None,
    calibrate: Path | None = None,
    check: Annotated[tuple[Path, Path] | None, Option(metavar="SOURCE REFERENCE")] = None,
    max_loss: Annotated[float, Option(min=0)] = 0.1,
    overwrite: options.Overwrite = False,
) -> None:
    """Write a model for another program: CTranslate2, transformers, or Firefox's engine.

    The directory also has the text pipeline and a README.md that says how to use them.

    Args:
        to: Program that will read it.
        out: Directory to write.
        quantization: ctranslate2: number format of the weights. Default: float32.
        calibrate: firefox: source text, such as the validation set's, in whose translations the
            ranges of 8-bit activations are measured.
        check: ctranslate2, firefox: translate with both programs and compare BLEU and speed.
        max_loss: Largest loss of BLEU in --check; more is exit code 3.
    """
    given = {
        "--quantization": ("ctranslate2", quantization),
        "--calibrate": ("firefox", calibrate),
        "--check": ("ctranslate2 or firefox", check),
    }
    for name, (programs, value) in given.items():
        if value is not None and to not in programs:
            what, hint = f"only works with --to {programs}", "leave it out"
            raise UserError(what, where=name, hint=hint)
    if to == "huggingface":
        from nmtdeep.tools.export.exporter import export_huggingface

        checkpoint = export_huggingface(run, out, overwrite=overwrite)
        _echo_written(out, checkpoint, "transformers, with a model card")
        return
    from nmtdeep.scoring.texts import read_texts

    texts = read_texts(check[0], [check[1]]) if check else None
    if to == "firefox":
        comparison = _to_firefox(run, out, calibrate, texts, overwrite=overwrite)
    else:
        comparison = _to_ctranslate2(run, out, quantization, texts, overwrite=overwrite)
    if comparison is None:
        return
    typer.echo("\n".join(comparison.summary()))
    if comparison.loss > max_loss:
        hint = "report this bug"
        if to == "firefox":
            hint = "fine-tune it with training.quantization=int8 (nmtdeep train --from RUN)"
        elif quantization:
            hint = "choose another --quantization"
        typer.echo(
            f"nmtdeep: the exported model in {out} lost {comparison.loss:.2f} BLEU, more than "
            f"--max-loss {max_loss:g}: {hint}",
            err=True,
        )
        raise typer.Exit(WORSE)


def _to_ctranslate2(
    run: Path,
    out: Path,
    quantization: Quantization | None,
    texts: Texts | None,
    *,
    overwrite: bool,
) -> ExportCheck | None:
    from nmtdeep.tools.export.comparison import check_ctranslate2
    from nmtdeep.tools.export.exporter import export_ctranslate2

    checkpoint = export_ctranslate2(run, out, quantization=quantization, overwrite=overwrite)
    _echo_written(out, checkpoint, f"CTranslate2, weights as {quantization or 'float32'}")
    return check_ctranslate2(checkpoint, out, texts) if texts else None


def _to_firefox(
    run: Path, out: Path, calibrate: Path | None, texts: Texts | None, *, overwrite: bool
) -> ExportCheck | None:
    from nmtdeep.text.lines import read_lines
    from nmtdeep.tools.export.comparison import check_firefox
    from nmtdeep.tools.export.exporter import export_firefox

    if calibrate is None:
        hint = "pass source text of a few hundred lines, such as that of the validation set"
        raise UserError("is missing", where="--calibrate", hint=hint)
    lines = list(read_lines(calibrate))
    checkpoint = export_firefox(run, out, lines=lines, overwrite=overwrite)
    _echo_written(out, checkpoint, "fxtranslate, weights and activations of 8 bits")
    return check_firefox(checkpoint, out, texts, calibration=lines) if texts else None


def _echo_written(out: Path, checkpoint: Path, what: str) -> None:
    from nmtdeep.checkpoint import MODEL
    from nmtdeep.files import size_of
    from nmtdeep.units import size

    before, after = size(size_of(checkpoint / MODEL)), size(size_of(out))
    model = "/".join(checkpoint.parts[-2:])
    typer.echo(f"{out}: {model} for {what}: {after} in all; its weights were {before}")
