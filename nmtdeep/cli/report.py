"""`nmtdeep report`: a page about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from nmtdeep.cli import options
from nmtdeep.cli.outputs import refuse_foreign
from nmtdeep.errors import UserError


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN")],
    *,
    output: options.Out = Path("report.html"),
    overwrite: bool = False,
) -> None:
    """Write one page about runs that any browser shows: scores, curves, recipes, cost.

    The page loads nothing from the network, so it can be sent and kept as it is.

    Args:
        runs: Run directories; the others are compared with the first.
        output: Page to write.
        overwrite: Replace a file that nmtdeep did not write, too.
    """
    if output.is_dir() or not output.parent.is_dir():
        what, where = "not a file in an existing directory", f"--output {output}"
        raise UserError(what, where=where, hint="name one, such as report.html")
    refuse_foreign(output, overwrite=overwrite)
    from nmtdeep.tools.report.run_report import report as write
    from nmtdeep.units import size

    write(runs, output)
    typer.echo(f"{output}: {size(output.stat().st_size)}; open it in a browser")
