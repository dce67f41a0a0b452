"""Outputs of commands: files that may exist already; an analysis' tables, CSV, JSON, picture."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from nmtdeep import analysis
from nmtdeep.cli.command import bundle
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.analysis.measurement import Measurement

JSON = Option("--json", help="Print all numbers as JSON.")


# What is in pictures and reports of nmtdeep.
MARKS = (b"made by nmtdeep", b" - nmtdeep report</title>")
LARGEST_OUTPUT = 1 << 24
REPLACE = "choose another file, or add --overwrite to replace it"


def refuse_existing(path: str | Path, *, overwrite: bool, hint: str = REPLACE) -> None:
    """Raise a UserError for a file with content, not a pipe or device, that is to be replaced."""
    try:
        found = Path(path).stat()
    except OSError:
        return
    if stat.S_ISREG(found.st_mode) and found.st_size and not overwrite:
        raise UserError("exists and is not empty", where=path, hint=hint)


def refuse_foreign(path: Path, *, overwrite: bool) -> None:
    """As `refuse_existing`, but what nmtdeep wrote itself may be replaced.

    A picture or report says that nmtdeep made it; a CSV begins with the columns of an analysis.
    """
    if overwrite or not path.is_file() or path.is_relative_to("/dev"):
        return
    with path.open("rb") as file:
        content = file.read(LARGEST_OUTPUT)
    if content and not (any(mark in content for mark in MARKS) or content.startswith(_csv_heads())):
        refuse_existing(path, overwrite=False)


def _csv_heads() -> tuple[bytes, ...]:
    """The first lines of the CSVs of all analyses: rows are the only named tuples there."""
    names = [each.name for each in iter_modules(analysis.__path__, f"{analysis.__name__}.")]
    values = [(name, value) for name in names for value in vars(import_module(name)).values()]
    kinds = [value for name, value in values if getattr(value, "__module__", "") == name]
    rows = [kind for kind in kinds if hasattr(kind, "_fields")]
    return tuple(f"{','.join(row._fields)}\n".encode() for row in rows)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The outputs of an analysis.

    Args:
        csv: Write every row to this file.
        plot: Draw a picture into this file: .svg, .png or .pdf.
        overwrite: Replace files that nmtdeep did not write, too.
    """

    csv: Path | None = None
    plot: Path | None = None
    as_json: Annotated[bool, JSON] = False
    overwrite: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        for path in filter(None, (self.csv, self.plot)):
            refuse_foreign(path, overwrite=self.overwrite)
        if self.plot and self.plot.suffix not in (".svg", ".png", ".pdf"):
            hint = "pass a file that ends in .svg, .png or .pdf"
            raise UserError("not a picture", where=f"--plot {self.plot}", hint=hint)
        if self.plot:
            import matplotlib  # noqa: F401  # fails before the measurement

    def write(self, measurement: Measurement) -> None:
        """Write the files, then print tables and signature, or JSON."""
        if self.csv:
            measurement.write_csv(self.csv)
        if self.plot:
            from nmtdeep.analysis.pictures import save

            save(measurement.draw, self.plot)
        if self.as_json:
            typer.echo(json.dumps(measurement.as_json(), indent=2, ensure_ascii=False))
            return
        from nmtdeep.tables import show

        show(*measurement.tables, measurement.signature)


WrittenTo = Annotated[Outputs, bundle(Outputs)]
