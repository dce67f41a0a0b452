"""Commands that show recipes, runs and data."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli import options
from nmtdeep.cli.outputs import Outputs, WrittenTo, refuse_foreign
from nmtdeep.errors import UserError

CURVES = Path("curves.svg")


def list_(words: Annotated[list[str] | None, Argument(metavar="WORD")] = None) -> None:
    """Print the name and the description of every recipe; tab-separated when piped.

    Args:
        words: List only recipes with each of these in the name, such as sdt 48; or else in
            description or reference, such as Table 1, grown or 29.3.
    """
    from nmtdeep.config.names import list_recipes

    wanted = words or ()
    entries = [*list_recipes(wanted).items()]
    if not entries:
        raise UserError(f"no recipe has {' and '.join(wanted)}", hint="leave out a word")
    if not sys.stdout.isatty():
        typer.echo("\n".join(map("\t".join, entries)))
        return
    from rich.text import Text

    from nmtdeep import tables

    rows = [(Text(name, style="bold", no_wrap=True), description) for name, description in entries]
    tables.show(tables.table(("name", "description"), rows, text=2))
    typer.echo("nmtdeep recipes show NAME prints one in full.")


def show(
    recipe: options.Recipe, overrides: options.Overrides = None, *, plain: bool = False
) -> None:
    """Print a recipe in full, as YAML: each value with the line or the override that sets it.

    Args:
        plain: Print the values without their origins.
    """
    from nmtdeep.config.load import resolve
    from nmtdeep.config.render import shown
    from nmtdeep.config.warnings import warnings

    resolved = resolve(recipe, overrides or ())
    for problem in warnings(resolved.recipe):
        typer.echo(f"nmtdeep: warning: {problem}", err=True)
    text = shown(resolved.recipe, None if plain else resolved.origin)
    typer.echo(text, nl=False)


def diff(a: options.Recipe, b: options.Recipe, overrides: options.Overrides = None) -> None:
    """Print the keys whose values differ between two recipes, with both values.

    Args:
        a: A recipe's name (nmtdeep recipes list) or file.
        b: The other recipe.
        overrides: Values to change in both.
    """
    from nmtdeep.config.load import load_recipe
    from nmtdeep.config.render import differences, every_value

    first, second = (every_value(load_recipe(name, overrides or ())) for name in (a, b))
    for change in differences(first, second):
        typer.echo(change)


def schema() -> None:
    """Print the JSON schema of recipe files, by which an editor completes and checks them."""
    from nmtdeep.config.recipe import Recipe

    whole = Recipe.model_json_schema()
    whole["properties"]["extends"] = {
        "type": "string",
        "description": "name or file of the recipe whose values this one changes",
    }
    typer.echo(json.dumps(whole, indent=1))


def inspect(path: Path) -> None:
    """Describe a run, a checkpoint or a data directory, and verify its files.

    Every file is read and compared with its checksum. With a damaged file, the exit code is 1.
    Of a data directory, warnings name text that is not what it should be.

    Args:
        path: Run directory, checkpoint or data directory.
    """
    from nmtdeep import tables
    from nmtdeep.inspection import inspect as inspect_directory

    screen = inspect_directory(path)
    tables.show(tables.describe(screen.rows), *screen.tables)
    if screen.problems:
        raise typer.Exit(1)


def plot(
    runs: Annotated[list[Path], Argument(metavar="RUN")],
    *,
    over: Literal["updates", "tokens", "hours"] = "updates",
    figure: Annotated[list[str] | None, Option(metavar="NAME")] = None,
    outputs: WrittenTo,
) -> None:
    """Draw the training and validation curves of runs, and print their latest values.

    Without --plot, --csv or --json the picture is curves.svg.

    Args:
        runs: Run directories.
        over: Unit of the x axis.
        figure: Figure of the log to draw, such as lr or valid_chrf. Default: nll, valid_nll and
            valid_bleu.
    """
    from nmtdeep.analysis import records

    usual = outputs == Outputs()
    if usual:
        outputs = Outputs(plot=CURVES, overwrite=outputs.overwrite)
    figures = list(dict.fromkeys(figure or records.USUAL))
    if unknown := [name for name in figures if name not in records.FIGURES]:
        hint = f"choose from {', '.join(records.FIGURES)}"
        raise UserError(f"no such figure: {', '.join(unknown)}", where="--figure", hint=hint)
    outputs.write(records.measure(records.names(runs), figures, over))
    if usual:
        typer.echo(f"picture: {CURVES}")


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN")],
    *,
    output: options.Out = Path("report.html"),
    data: Path | None = None,
    split: str | None = None,
    samples: options.Whole = 10,
    comet_model: Annotated[str | None, options.COMET_MODEL] = None,
    overwrite: bool = False,
    device: options.Place,
) -> None:
    """Write one page about runs that any browser shows: scores, curves, translations, pictures.

    The page loads nothing from the network, so it can be sent and kept as it is.

    Args:
        runs: Run directories; the others are compared with the first.
        output: Page to write.
        data: Data directory: also translate a test set and look into the models.
        split: Set of --data to translate. Default: the first test set, or valid.
        samples: Number of translations to show.
        comet_model: COMET model on this machine that scores the translations too.
        overwrite: Replace a file that nmtdeep did not write, too.
    """
    for name, value in {"--split": split, "--comet-model": comet_model}.items():
        if value and not data:
            raise UserError("needs a data directory", where=f"{name} {value}", hint="add --data")
    if output.is_dir() or not output.parent.is_dir():
        what, where = "not a file in an existing directory", f"--output {output}"
        raise UserError(what, where=where, hint="name one, such as report.html")
    refuse_foreign(output, overwrite=overwrite)
    from nmtdeep.tools.report import run_report
    from nmtdeep.tools.report.held_out import SetOptions
    from nmtdeep.units import size

    run_report.report(
        runs,
        output,
        SetOptions(data, split, samples, comet_model) if data else None,
        device=str(device),
        say=partial(typer.echo, err=True),
    )
    typer.echo(f"{output}: {size(output.stat().st_size)}; open it in a browser")
