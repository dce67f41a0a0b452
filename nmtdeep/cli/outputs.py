"""What an analysis is written to: tables on the screen, CSV, JSON, a picture."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from nmtdeep.cli.options import Bundle, Json, option, parameters_of
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from rich.table import Table

    from nmtdeep.analysis.measurement import Measurement


class Analysis(NamedTuple):
    """Rows, and the functions that make tables and a picture of them."""

    measurement: Measurement
    tables: Callable[[Sequence[Any]], list[Table]]
    draw: Callable[[Sequence[Any], Figure], None]


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where the results of an analysis go.

    Args:
        csv: Write every row to this file.
        plot: Draw a picture into this file: .svg, .png or .pdf.
    """

    csv: Path | None = None
    plot: Path | None = None
    as_json: Json = False

    def __post_init__(self) -> None:
        where = f"--plot {self.plot}"
        if self.plot and self.plot.suffix not in (".svg", ".png", ".pdf"):
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


WrittenTo = Annotated[Outputs, Bundle(parameters_of(Outputs)[0], lambda given: Outputs(**given))]


def written(measure: Callable[..., Analysis]) -> Callable[..., None]:
    """A command that writes the analysis that a function returns, with --csv, --plot, --json."""

    @wraps(measure)
    def command(*, outputs: Outputs, **values: Any) -> None:
        outputs.write(measure(**values))

    own = inspect.signature(measure, eval_str=True).parameters.values()
    outputs = option("outputs", WrittenTo)
    command.__signature__ = inspect.Signature([*own, outputs])  # type: ignore[attr-defined]
    return command
