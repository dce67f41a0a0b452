"""`nmtdeep recipes`: which recipes there are, and what one says in full."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.command import HELP, Command, Group
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.config.load import RecipeEntry

app = typer.Typer(
    cls=Group,
    help="Recipes: whole experiments by name.",
    no_args_is_help=True,
    context_settings=HELP,
    epilog="nmtdeep recipes list multi30k",
)


@app.command("list", cls=Command, epilog="nmtdeep recipes list sdt 48")
def list_(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Only names with each of these, such as sdt 48."),
    ] = None,
) -> None:
    """Print the name and the description of every recipe; tab-separated when piped."""
    from nmtdeep.config.load import list_recipes

    wanted = words or ()
    entries = [one for one in list_recipes() if all(word in one.name for word in wanted)]
    if not entries:
        raise UserError(f"no recipe's name has {' and '.join(wanted)}: leave out a word")
    if sys.stdout.isatty():
        _print_table(entries)
        return
    for entry in entries:
        typer.echo(f"{entry.name}\t{entry.description}")


@app.command(
    "show",
    cls=Command,
    no_args_is_help=True,
    epilog="nmtdeep recipes show demo model.encoder.depth=12",
)
def show(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE", help="A recipe's name or file.", autocompletion=completion.recipes
        ),
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe values to change.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Without the origins.")] = False,
) -> None:
    """Print a recipe in full, as YAML: each value with the line or the override that says it."""
    from nmtdeep.config.load import resolve
    from nmtdeep.config.render import annotated, dump

    resolved = resolve(recipe, overrides or ())
    text = dump(resolved.recipe) if plain else annotated(resolved.recipe, resolved.origin)
    typer.echo(text, nl=False)


def _print_table(entries: list[RecipeEntry]) -> None:
    from rich.console import Console
    from rich.text import Text

    from nmtdeep.tables import table

    rows = [(Text(entry.name, style="bold", no_wrap=True), entry.description) for entry in entries]
    console = Console()
    console.print(table({"name": "left", "description": "left"}, rows))
    console.print("nmtdeep recipes show NAME prints one in full.", style="dim")
