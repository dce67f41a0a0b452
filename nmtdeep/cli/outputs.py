"""What an analysis is written to: tables on the screen, CSV, JSON, a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nmtdeep.cli.options import Command, collected, option
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from rich.table import Table

    from nmtdeep.analysis.measurement import Measurement

PICTURES = (".svg", ".png", ".pdf")
OPTIONS = [
    option("csv", Annotated[Path | None, typer.Option(help="Write every row to this file.")]),
    option(
        "plot",
        Annotated[
            Path | None, typer.Option(help="Draw a picture into this file: .svg, .png or .pdf.")
        ],
    ),
    option(
        "as_json",
        Annotated[bool, typer.Option("--json", help="Print all numbers as one JSON object.")],
        default=False,
    ),
]


class Analysis(NamedTuple):
    """Rows, and the functions that make tables and a picture of them."""

    measurement: Measurement
    tables: Callable[[Sequence[Any]], list[Table]]
    draw: Callable[[Sequence[Any], Figure], None]


@dataclass(frozen=True)
class Outputs:
    """The files that are wanted, and whether JSON is printed instead of tables."""

    csv: Path | None
    plot: Path | None
    as_json: bool

    def check(self) -> None:
        """Refuse a picture that cannot be drawn, before any work.

        Raises:
            UserError: if the file's type is unknown or matplotlib is missing.
        """
        where = f"--plot {self.plot}"
        if self.plot and self.plot.suffix not in PICTURES:
            hint = "give a file that ends in .svg, .png or .pdf"
            raise UserError("not a picture", where=where, hint=hint)
        if self.plot and find_spec("matplotlib") is None:
            hint = 'pip install "nmtdeep[pictures]", or leave --plot out and give --csv or --json'
            raise UserError("a picture needs matplotlib: not installed", where=where, hint=hint)

    def write(self, analysis: Analysis) -> None:
        """Write the files, then print tables and signature, or JSON."""
        measurement, tables, draw = analysis
        if self.csv:
            measurement.write_csv(self.csv)
        if self.plot:
            from nmtdeep.analysis.pictures import save

            save(partial(draw, measurement.rows), self.plot)
        if self.as_json:
            typer.echo(json.dumps(measurement.as_json(), indent=2, ensure_ascii=False))
            return
        from rich.console import Console

        for table in tables(measurement.rows):
            Console().print(table)
        typer.echo(measurement.signature)


def analysis(measure: Callable[..., Analysis]) -> Command:
    """A decorator: a command of a function that returns an analysis, with --csv, --plot, --json."""

    def command(*, outputs: Outputs, **values: Any) -> None:
        outputs.check()
        outputs.write(measure(**values))

    return collected("outputs", OPTIONS, lambda given: Outputs(**given), like=measure)(command)
