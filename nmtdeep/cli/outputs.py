"""Outputs of commands: files that may exist already; an analysis' tables, CSV, JSON, picture."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from nmtdeep.cli.options import bundle
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.analysis.measurement import Measurement

FILE = Option(rich_help_panel="Output")
JSON = Option("--json", help="Print all numbers as JSON.", rich_help_panel="Output")


REPLACE = "choose another file, or add --overwrite to replace it"


def refuse_existing(path: str | Path, *, overwrite: bool, hint: str = REPLACE) -> None:
    """Raise a UserError for a file with content, not a pipe or device, that is to be replaced."""
    try:
        found = Path(path).stat()
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_size and not overwrite:
        raise UserError("exists and is not empty", where=path, hint=hint)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The outputs of an analysis.

    Args:
        csv: Write every row to this file.
        plot: Draw a picture into this file: .svg, .png or .pdf.
    """

    csv: Annotated[Path | None, FILE] = None
    plot: Annotated[Path | None, FILE] = None
    as_json: Annotated[bool, JSON] = False

    def __post_init__(self) -> None:
        if self.plot and self.plot.suffix not in (".svg", ".png", ".pdf"):
            hint = "pass a file that ends in .svg, .png or .pdf"
            raise UserError("not a picture", where=f"--plot {self.plot}", hint=hint)
        if self.plot:
            import matplotlib  # noqa: F401  # fails before the measurement

    def write(self, measurement: Measurement, analysis: ModuleType, **drawing: Any) -> None:
        """Write the files, then print tables and signature, or JSON.

        Args:
            analysis: makes tables of the rows, and draws them into a figure.
            drawing: options of its `draw`.
        """
        if self.csv:
            measurement.write_csv(self.csv)
        if self.plot:
            from nmtdeep.analysis.pictures import save

            save(partial(analysis.draw, measurement.rows, **drawing), self.plot)
        if self.as_json:
            typer.echo(json.dumps(measurement.as_json(), indent=2, ensure_ascii=False))
            return
        from rich.console import Console

        for table in analysis.tables(measurement.rows):
            Console().print(table)
        typer.echo(measurement.signature)


WrittenTo = Annotated[Outputs, bundle(Outputs)]
