"""Where figures go: the screen, a CSV, JSON, a picture; the same options for every command."""

from __future__ import annotations

import json
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.figure import Figure
    from rich.table import Table

    from nmtdeep.analysis.measurement import Measurement

PICTURES = (".svg", ".png", ".pdf")

Csv = Annotated[Path | None, typer.Option("--csv", help="Write every row to this file.")]
Plot = Annotated[
    Path | None, typer.Option("--plot", help="Draw a picture into this file: .svg, .png or .pdf.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object with all numbers.")]


def as_typed(typed: Path, found: Path) -> Path:
    """The checkpoint that was found for a run or checkpoint, under the name that was typed."""
    for folder in (typed, typed.parent):
        if folder.resolve() == found.parent:
            return folder / found.name
    return found


def check_plot(plot: Path | None, otherwise: str = "leave --plot out") -> None:
    """Refuse, before any work, a picture that cannot be drawn; `otherwise` is how to do without."""
    if plot and plot.suffix not in PICTURES:
        raise UserError(f"--plot {plot}: give a file that ends in .svg, .png or .pdf")
    if plot and find_spec("matplotlib") is None:
        raise UserError(
            f'{plot} needs matplotlib, which is not installed: pip install "nmtdeep[pictures]", or '
            f"{otherwise}"
        )


def give(
    measurement: Measurement,
    tables: Callable[[Sequence[Any]], list[Table]],
    draw: Callable[[Sequence[Any], Figure], None],
    *,
    csv: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Write the files that are wanted, then print tables and signature, or JSON."""
    from rich.console import Console

    if csv:
        measurement.write_csv(csv)
    if plot:
        from nmtdeep.analysis.pictures import save

        save(partial(draw, measurement.rows), plot)
    if as_json:
        typer.echo(json.dumps(measurement.as_json(), indent=2, ensure_ascii=False))
        return
    console = Console()
    for table in tables(measurement.rows):
        console.print(table)
    typer.echo(measurement.signature)
