"""`nmtdeep inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose


def inspect(
    path: Annotated[
        Path,
        typer.Argument(metavar="PATH", help="Run directory, checkpoint or data directory."),
    ],
    verbose: Verbose = False,
) -> None:
    """Say what a run, a checkpoint or a data directory is, and whether it is whole.

    Every file is read and compared with its checksum. The exit code is 1 if one is damaged.
    """
    from rich.console import Console, RenderableType

    from nmtdeep.checkpoint import STATE
    from nmtdeep.data.index import INDEX_FILE
    from nmtdeep.inspection.data import inspect_data
    from nmtdeep.inspection.runs import inspect_checkpoint, inspect_run
    from nmtdeep.tables import describe

    tables: list[RenderableType] = []
    if (path / INDEX_FILE).is_file():
        found, report = inspect_data(path)
        tables = report.tables()
    elif (path / STATE).is_file():
        found = inspect_checkpoint(path)
    else:
        found = inspect_run(path)
    typer.echo(describe(found.rows))
    for table in tables:
        Console().print(table)
    if found.problems:
        raise typer.Exit(1)
