"""`nmtdeep export`: a model for another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from nmtdeep.cli import options
from nmtdeep.errors import UserError
from nmtdeep.tools.export import Quantization

# Exit code if the written model is worse, or if only the model card was written.
INCOMPLETE = 3


def export(
    run: options.Run,
    *,
    to: Literal["ctranslate2", "huggingface"],
    out: options.Out,
    quantization: Quantization | None = None,
    check: Annotated[tuple[Path, Path] | None, Option(metavar="SOURCE REFERENCE")] = None,
    max_loss: Annotated[float, Option(min=0)] = 0.1,
    overwrite: options.Overwrite = False,
    threads: options.Threads = None,
) -> None:
    """Write a model for another program: CTranslate2, or Hugging Face's transformers.

    The directory also has the text pipeline and a README.md that says how to use them.

    Args:
        to: Program that will read it.
        out: Directory to write.
        quantization: ctranslate2: number format of the weights. Default: float32.
        check: ctranslate2: translate with both programs and compare BLEU and speed.
        max_loss: Largest loss of BLEU in --check; more is exit code 3.
    """
    if to == "huggingface":
        given = {"--quantization": quantization, "--check": check, "--threads": threads}
        if names := [name for name, value in given.items() if value is not None]:
            what, hint = "only works with --to ctranslate2", "leave it out"
            raise UserError(what, where=" and ".join(names), hint=hint)
        _to_huggingface(run, out, overwrite=overwrite)
        return
    from nmtdeep.checkpoint import MODEL
    from nmtdeep.files import size_of
    from nmtdeep.scoring.texts import read_texts
    from nmtdeep.tools.export.comparison import check_export
    from nmtdeep.tools.export.exporter import export_ctranslate2
    from nmtdeep.units import size

    texts = read_texts(check[0], [check[1]]) if check else None
    done = export_ctranslate2(run, out, quantization=quantization, overwrite=overwrite)
    model = "/".join(done.checkpoint.parts[-2:])
    typer.echo(
        f"{out}: {model} for CTranslate2, {quantization or 'float32'}, "
        f"{size(size_of(out))} in all; its weights were {size(size_of(done.checkpoint / MODEL))}"
    )
    if texts is None:
        return
    comparison = check_export(done.checkpoint, out, texts, threads=threads)
    typer.echo("\n".join(comparison.summary()))
    if comparison.loss > max_loss:
        hint = "choose another --quantization" if quantization else "report this bug"
        typer.echo(
            f"nmtdeep: the exported model in {out} lost {comparison.loss:.2f} BLEU, more than "
            f"--max-loss {max_loss:g}: {hint}",
            err=True,
        )
        raise typer.Exit(INCOMPLETE)


def _to_huggingface(run: Path, out: Path, *, overwrite: bool) -> None:
    from nmtdeep.tools.export.exporter import export_huggingface

    done = export_huggingface(run, out, overwrite=overwrite)
    if not done.problems:
        model = "/".join(done.checkpoint.parts[-2:])
        typer.echo(f"{out}: {model} for transformers ({done.name}), and its model card")
        return
    typer.echo(
        f"nmtdeep: {out} has only a model card: transformers has no class for this model "
        f"({'; '.join(map(str, done.problems))}): translate with nmtdeep, try --to ctranslate2, or "
        "train a model with these changes",
        err=True,
    )
    raise typer.Exit(INCOMPLETE)
