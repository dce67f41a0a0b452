"""`nmtdeep inspect`."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument


def inspect(
    path: Path = Argument(..., metavar="PATH", help="Run directory, checkpoint or data directory."),
) -> None:
    """Describe a run, a checkpoint or a data directory, and verify its files.

    Every file is read and compared with its checksum. With a damaged file, the exit code is 1.
    """
    from rich.console import Console, RenderableType

    from nmtdeep.checkpoint import STATE
    from nmtdeep.data.index import INDEX_FILE
    from nmtdeep.inspection import inspect_checkpoint, inspect_data, inspect_run
    from nmtdeep.tables import describe

    tables: list[RenderableType] = []
    if (path / INDEX_FILE).is_file():
        screen, report = inspect_data(path)
        tables = report.tables()
    elif (path / STATE).is_file():
        screen = inspect_checkpoint(path)
    else:
        screen = inspect_run(path)
    typer.echo(describe(screen.rows))
    for table in tables:
        Console().print(table)
    if screen.problems:
        raise typer.Exit(1)
