"""`nmtdeep convert`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.command import Group, add_command
from nmtdeep.cli.options import Overwrite, SourceLanguage, TargetLanguage
from nmtdeep.errors import UserError
from nmtdeep.files import check_place

EXAMPLE = "nmtdeep convert fairseq checkpoint_best.pt dict.en.txt dict.de.txt -o model"
app = typer.Typer(cls=Group, no_args_is_help=True, epilog=EXAMPLE)


@app.callback()
def main() -> None:
    """Convert models of other toolkits to checkpoints that translate here."""


def fairseq(
    checkpoint: Path = Argument(
        ..., metavar="CHECKPOINT", help="File of fairseq: checkpoint_best.pt."
    ),
    dictionaries: list[Path] = Argument(
        ..., metavar="DICT", help="dict.LANG.txt: one for both, or source, target."
    ),
    *,
    output: Path = Option(..., "-o", "--output", "--out", help="Checkpoint to write."),
    bpe: list[Path] | None = Option(
        None,
        help="Codes of subword-nmt, twice if source and target have their own; without it the "
        "input must be split already.",
    ),
    tokenization: Literal["moses", "none"] = Option(
        "moses", help="Tokenization before --bpe; moses takes raw text."
    ),
    source_lang: SourceLanguage = None,
    target_lang: TargetLanguage = None,
    normalize: bool = Option(True, help="Normalize punctuation as Moses does."),
    lowercase: bool = Option(False, "--lowercase", help="Lower-case the input."),
    aggressive_hyphens: bool = Option(
        False, "--aggressive-hyphens", help="Split hyphens, as tokenizer.perl -a."
    ),
    overwrite: Overwrite = False,
) -> None:
    """Convert a checkpoint of a fairseq Transformer, or of the DLCL release.

    No code in the file is executed. An unsupported model is rejected with every reason listed.
    """
    from nmtdeep.checkpoint import STATE
    from nmtdeep.conversion.fairseq import TextOptions, convert

    check_place(output, "--output")
    if output.exists() and not (overwrite and (output / STATE).is_file()):
        choice = "add --overwrite, or choose" if (output / STATE).is_file() else "choose"
        raise UserError("exists", where=output, hint=f"{choice} another --output")
    choices = TextOptions(
        tuple(bpe or ()),
        tokenization,
        source_lang,
        target_lang,
        normalize=normalize,
        lowercase=lowercase,
        aggressive_hyphens=aggressive_hyphens,
    )
    recipe, pipeline = convert(checkpoint, dictionaries, output, choices)
    model, text = recipe.model, recipe.text
    typer.echo(
        f"{output}: {model.encoder.depth}+{model.decoder.depth} layers, width {model.width}, "
        f"{len(pipeline.source.vocabulary):,} and {len(pipeline.target.vocabulary):,} types, "
        f"{text.source} to {text.target}, {text.input} text"
    )
    typer.echo(f"translate with: nmtdeep translate -m {output}")


add_command(app, fairseq, EXAMPLE)
