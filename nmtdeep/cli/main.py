"""The `nmtdeep` command: its subcommands, and errors as one clear line."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from nmtdeep import __version__
from nmtdeep.cli import average, demo, preprocess, recipes, score, train, translate
from nmtdeep.errors import UserError

app = typer.Typer(
    name="nmtdeep",
    help="Deep neural machine translation: raw parallel text in, translations and scores out.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("preprocess", no_args_is_help=True)(preprocess.preprocess)
app.command("train", no_args_is_help=True, context_settings={"allow_interspersed_args": True})(
    train.train
)
app.command("average-checkpoints", no_args_is_help=True)(average.average_checkpoints)
app.command("translate", no_args_is_help=True)(translate.translate)
app.command("score", no_args_is_help=True)(score.score)
app.command("demo")(demo.demo)
app.add_typer(recipes.app, name="recipes")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"nmtdeep {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Deep neural machine translation: raw parallel text in, translations and scores out."""


def run() -> None:
    """Entry point: a `UserError` becomes one line on stderr and exit code 2."""
    try:
        app()
    except UserError as error:
        typer.echo(f"nmtdeep: error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has left; nothing more can be said to them.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
