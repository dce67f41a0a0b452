"""`nmtdeep recipes`: the list, one in full, the difference of two, the schema of their files."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated

import typer
from typer import Argument

from nmtdeep.cli import options
from nmtdeep.errors import UserError


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


def show(recipe: options.Recipe, overrides: options.Overrides = None) -> None:
    """Print a recipe in full, as YAML: each value with the line or the override that sets it.

    Above it are the paper's row and scores, and the command line that trains it.
    """
    from nmtdeep.config.load import resolve
    from nmtdeep.config.render import display
    from nmtdeep.config.warnings import warnings

    resolved = resolve(recipe, overrides or ())
    for problem in warnings(resolved.recipe):
        typer.echo(f"nmtdeep: warning: {problem}", err=True)
    reference = resolved.recipe.reference
    if reference.paper:
        scores = [f"{name} {score:g}" for name, score in reference.scores.items()]
        if reference.parameters:
            scores.append(f"{reference.parameters} parameters")
        row = ", ".join(filter(None, [reference.table, reference.row]))
        typer.echo(f"# {reference.paper}\n# {row}: {', '.join(scores) or 'no score'}")
    command = shlex.join(["nmtdeep", "train", recipe, *(overrides or ())])
    typer.echo(f"# train it with: {command} --data DATA --out RUN")
    typer.echo(display(resolved.recipe, resolved.origin), nl=False)


def diff(a: options.Recipe, b: options.Recipe) -> None:
    """Print the keys whose values differ between two recipes, with both values.

    Descriptions and what the papers report are left out.

    Args:
        a: A recipe's name (nmtdeep recipes list) or file.
        b: The other recipe.
    """
    from nmtdeep.config.load import load_recipe
    from nmtdeep.config.render import differences, every_value

    first, second = (every_value(load_recipe(name)) for name in (a, b))
    for text in ("description", "reference"):
        del first[text], second[text]
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
