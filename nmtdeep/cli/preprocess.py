"""`nmtdeep preprocess`: parallel text to a data directory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.choices import Verbose

if TYPE_CHECKING:
    from nmtdeep.config import Recipe


def preprocess(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="A name (nmtdeep recipes list) or a file.",
            autocompletion=completion.recipes,
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe values to change.")
    ] = None,
    *,
    train: Annotated[
        Path, typer.Option(help="Training text: PREFIX of PREFIX.en and PREFIX.de (or .en.gz).")
    ],
    valid: Annotated[Path, typer.Option(help="Validation text: PREFIX.")],
    test: Annotated[
        list[Path] | None, typer.Option(help="Test text: PREFIX; its last part names the split.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Data directory to make.")],
    source_lang: Annotated[
        str | None,
        typer.Option("-s", "--source-lang", help="Source language code, if not the recipe's."),
    ] = None,
    target_lang: Annotated[
        str | None,
        typer.Option("-t", "--target-lang", help="Target language code, if not the recipe's."),
    ] = None,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes; 0: one per core.", show_default="cores")
    ] = 0,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a finished data directory.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check recipe and files, show what would be done.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no tables.")] = False,
    verbose: Verbose = False,
) -> None:
    """Make a data directory: normalize, tokenize, learn BPE, clean, binarize.

    Prints every pair dropped, by reason. Validation and test files keep every line.
    """
    from nmtdeep.config.load import load_recipe
    from nmtdeep.preprocessing.preprocess import preprocess as run
    from nmtdeep.preprocessing.progress import Progress

    languages = [
        f"text.{side}={code}"
        for side, code in (("source", source_lang), ("target", target_lang))
        if code is not None
    ]
    loaded = load_recipe(recipe, [*(overrides or ()), *languages])
    if dry_run:
        _dry_run(loaded, train=train, valid=valid, tests=test or [], out=out, overwrite=overwrite)
        return
    report = run(
        loaded,
        train=train,
        valid=valid,
        tests=test or (),
        out=out,
        workers=workers or _cores(),
        overwrite=overwrite,
        progress=Progress("none" if quiet else "auto"),
    )
    if not quiet:
        from rich.console import Console

        report.show(Console())
        typer.echo(f"data directory: {out}")


def _cores() -> int:
    """Cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _dry_run(
    recipe: Recipe, *, train: Path, valid: Path, tests: list[Path], out: Path, overwrite: bool
) -> None:
    """Print the resolved text section, the files with their lines, and three tokenized pairs."""
    from nmtdeep.config.render import to_yaml
    from nmtdeep.preprocessing.inputs import check_free, find_inputs
    from nmtdeep.preprocessing.stages import Tokenize

    check_free(out, overwrite=overwrite)
    inputs = find_inputs(recipe.text, train=train, valid=valid, tests=tests)
    dump = recipe.text.model_dump(mode="json")
    typer.echo(to_yaml({"text": dump}), nl=False)
    for files in inputs:
        typer.echo(f"{files.split}: {files.lines:,} pairs of {files.source} and {files.target}")
    for source, target in Tokenize(recipe.text)(inputs[0].head(3)).pairs:
        typer.echo(f"{recipe.text.source}: {source}\n{recipe.text.target}: {target}")
    typer.echo(f"would make {out}; nothing was written")
