"""`nmtdeep reproduce`: a table or figure of a paper again."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from nmtdeep.cli import options
from nmtdeep.errors import UserError


def _complete(incomplete: str) -> list[str]:
    from nmtdeep.tools.reproduce.targets import targets

    return [name for name in targets() if name.startswith(incomplete)]


TARGET = Argument(metavar="TARGET", autocompletion=_complete)


def reproduce(
    target: Annotated[str | None, TARGET] = None,
    *,
    data: Path | None = None,
    device: options.Place,
) -> None:
    """Print what a paper's table or figure says beside what is computed here.

    What a measurement gives is measured now. Of models that are trained for days: parameters,
    printed scores, and the commands that train one and estimate its hours on this machine.

    Args:
        target: Table or figure, such as zhang-2019/table-1. Default: print their names.
        data: Data directory to measure on.
    """
    from nmtdeep import tables
    from nmtdeep.tools.reproduce import targets as tool

    if target is None:
        tables.show(tables.table(("table or figure", "content"), tool.targets().items(), text=2))
        return
    name = tool.checked(target)
    if tool.needs_data(name) and data is None:
        hint = "add --data DIR, such as that of multi30k-en-de"
        raise UserError("is measured on sentences", where=name, hint=hint)
    if name in tool.published()["measured"] and data is not None:
        from nmtdeep.analysis.probe import ProbeText
        from nmtdeep.data.corpus import DataDirectory

        text = ProbeText(DataDirectory.open(data), 3000, device)
        tables.show(*tool.measured(name, text))
    figure = tool.figure(name)
    if figure:
        tables.show(f"The figure has no numbers. The paper: {figure['says']}.")
    for command in figure.get("commands", ()):
        words = [str(data) if word == "DATA" and data else word for word in command.split()]
        typer.echo(f"$ {shlex.join(words)}")
        if command.startswith(tool.RUN):
            from nmtdeep.cli.main import app

            app(words[1:], prog_name="nmtdeep", standalone_mode=False)
    rows, commands = tool.trained(name)
    if rows:
        estimate = "nmtdeep train RECIPE --data DATA --dry-run --estimate"
        then = f"Commands for a recipe of the paper, RECIPE; {estimate} prints its hours here:"
        tables.show(*rows, f"\n{then}\n")
        typer.echo(commands)
