"""`nmtdeep inspect`: what a run, a checkpoint or a data directory is."""

from __future__ import annotations

from pathlib import Path

import typer


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
