"""`nmtdeep convert`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.cli.command import HELP, Command, Group
from nmtdeep.errors import UserError
from nmtdeep.files import check_place

app = typer.Typer(
    cls=Group,
    help="Models of other toolkits as checkpoints that translate here.",
    no_args_is_help=True,
    context_settings=HELP,
    epilog="nmtdeep convert fairseq checkpoint_best.pt dict.txt --output model",
)


class Tokenization(StrEnum):
    """What stands before BPE."""

    MOSES = "moses"
    NONE = "none"


@app.callback()
def main() -> None:
    """Models of other toolkits as checkpoints that translate here."""


EXAMPLE = "nmtdeep convert fairseq checkpoint_best.pt dict.en.txt dict.de.txt -o model"


@app.command("fairseq", cls=Command, no_args_is_help=True, epilog=EXAMPLE)
def fairseq(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="File of fairseq: checkpoint_best.pt.")
    ],
    dictionaries: Annotated[
        list[Path],
        typer.Argument(metavar="DICT", help="dict.LANG.txt: one for both, or source, target."),
    ],
    *,
    output: Annotated[Path, typer.Option("-o", "--output", "--out", help="Checkpoint to make.")],
    bpe: Annotated[
        list[Path] | None,
        typer.Option(help="Codes of subword-nmt; twice for source and target; none: split text."),
    ] = None,
    tokenization: Annotated[
        Tokenization, typer.Option(help="What stands before --bpe: moses takes raw text.")
    ] = Tokenization.MOSES,
    source_lang: Annotated[
        str | None, typer.Option("-s", "--source-lang", help="If not the checkpoint's.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option("-t", "--target-lang", help="If not the checkpoint's.")
    ] = None,
    normalize: Annotated[bool, typer.Option(help="Normalize punctuation as Moses does.")] = True,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Lower-case the input.")] = False,
    aggressive_hyphens: Annotated[
        bool, typer.Option("--aggressive-hyphens", help="Split hyphens, as tokenizer.perl -a.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a checkpoint that is there.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Make a checkpoint of a fairseq Transformer, or of the DLCL release's.

    Nothing that is in the file is run. A model that cannot be held here is refused with all
    reasons.
    """
    from nmtdeep.checkpoint import STATE
    from nmtdeep.conversion.fairseq import TextOptions, convert

    check_place(output, "--output")
    if output.exists() and not (overwrite and (output / STATE).is_file()):
        hint = "add --overwrite, or choose" if (output / STATE).is_file() else "choose"
        raise UserError(f"{output} exists: {hint} another --output")
    choices = TextOptions(
        tuple(bpe or ()),
        tokenization.value,
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
