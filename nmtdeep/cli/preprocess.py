"""`nmtdeep preprocess`: parallel text to a data directory."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Option

from nmtdeep.cli import options as shared
from nmtdeep.cli.options import DryRun, Overrides, Overwrite, Quiet, Workers

if TYPE_CHECKING:
    from nmtdeep.config import Recipe


def preprocess(
    recipe: shared.Recipe,
    overrides: Overrides = None,
    *,
    train: Path = Option(..., help="Training text: PREFIX of PREFIX.en and PREFIX.de (or .en.gz)."),
    valid: Path = Option(..., help="Validation text: PREFIX."),
    test: list[Path] | None = Option(
        None, help="Test text: PREFIX; its last part names the split."
    ),
    out: Path = Option(..., help="Data directory to write."),
    source_lang: shared.SourceLanguage = None,
    target_lang: shared.TargetLanguage = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Make a data directory: normalize, tokenize, learn BPE, clean, binarize.

    Prints how many pairs were dropped, by reason. Validation and test files keep every line.
    """
    from nmtdeep.config.load import load_recipe
    from nmtdeep.devices import cores
    from nmtdeep.preprocessing.preprocess import preprocess as run
    from nmtdeep.preprocessing.progress import Progress

    languages = {"source": source_lang, "target": target_lang}
    codes = [f"text.{side}={code}" for side, code in languages.items() if code is not None]
    loaded = load_recipe(recipe, [*(overrides or ()), *codes])
    if dry_run:
        _dry_run(loaded, train=train, valid=valid, tests=test or [], out=out, overwrite=overwrite)
        return
    report = run(
        loaded,
        train=train,
        valid=valid,
        tests=test or (),
        out=out,
        workers=workers or cores(),
        overwrite=overwrite,
        progress=Progress("none" if quiet else "auto"),
    )
    if not quiet:
        from rich.console import Console

        report.show(Console())
        typer.echo(f"data directory: {out}")


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
    for source, target in Tokenize(recipe.text)(list(islice(inputs[0].pairs(), 3))).pairs:
        typer.echo(f"{recipe.text.source}: {source}\n{recipe.text.target}: {target}")
    typer.echo(f"would write {out}; nothing was written")
