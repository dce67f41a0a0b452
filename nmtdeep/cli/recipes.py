"""`nmtdeep recipes`: names and contents of the shipped recipes."""

from __future__ import annotations

import sys

import typer
from typer import Argument, Option

from nmtdeep.cli.command import Group, add_command
from nmtdeep.cli.options import Overrides, Recipe
from nmtdeep.errors import UserError

app = typer.Typer(
    cls=Group,
    help="List the shipped recipes, or print one in full.",
    no_args_is_help=True,
    epilog="nmtdeep recipes list multi30k",
)


def list_(
    words: list[str] | None = Argument(
        None, metavar="WORD", help="List only names with each of these, such as sdt 48."
    ),
) -> None:
    """Print the name and the description of every recipe; tab-separated when piped."""
    from nmtdeep.config.load import list_recipes

    wanted = words or ()
    entries = [entry for entry in list_recipes() if all(word in entry.name for word in wanted)]
    if not entries:
        raise UserError(f"no recipe's name has {' and '.join(wanted)}", hint="leave out a word")
    if not sys.stdout.isatty():
        for entry in entries:
            typer.echo(f"{entry.name}\t{entry.description}")
        return
    from rich.console import Console
    from rich.text import Text

    from nmtdeep.tables import table

    rows = [(Text(entry.name, style="bold", no_wrap=True), entry.description) for entry in entries]
    console = Console()
    console.print(table({"name": "left", "description": "left"}, rows))
    console.print("nmtdeep recipes show NAME prints one in full.", style="dim")


def show(
    recipe: Recipe,
    overrides: Overrides = None,
    plain: bool = Option(False, "--plain", help="Print the values without their origins."),
) -> None:
    """Print a recipe in full, as YAML: each value with the line or the override that sets it."""
    from nmtdeep.config.load import resolve
    from nmtdeep.config.render import annotated, dump

    resolved = resolve(recipe, overrides or ())
    text = dump(resolved.recipe) if plain else annotated(resolved.recipe, resolved.origin)
    typer.echo(text, nl=False)


add_command(app, list_, "nmtdeep recipes list sdt 48")
add_command(app, show, "nmtdeep recipes show demo model.encoder.depth=12")
