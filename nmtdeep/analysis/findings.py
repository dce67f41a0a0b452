"""What an analysis found: rows for a CSV, a table for a screen, a picture, a signature."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from nmtdeep import __version__
from nmtdeep.analysis.panels import Picture
from nmtdeep.files import replace_file


@dataclass(frozen=True)
class Findings:
    """Everything that one analysis gives.

    Attributes:
        rows: dataclasses or dicts of one kind, at least one.
        tables: for the screen.
        picture: made when somebody wants it.
        conditions: what the figures depend on.
        signature: the same in one line; empty where it was said before.
        called: what JSON calls the rows.
        besides: what JSON has before them.
    """

    rows: Sequence[Any]
    tables: Sequence[Table]
    picture: Callable[[], Picture]
    conditions: Mapping[str, Any]
    signature: str
    called: str = "rows"
    besides: Mapping[str, Any] = field(default_factory=dict)

    def records(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return [row if isinstance(row, dict) else asdict(row) for row in self.rows]

    def everything(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "conditions": dict(self.conditions),
            **self.besides,
            self.called: self.records(),
        }

    def write_csv(self, path: Path) -> None:
        """A line for each row, with a header; empty where a value is None."""
        records = self.records()
        with replace_file(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
            writer.writeheader()
            for record in records:
                writer.writerow({name: _cell(value) for name, value in record.items()})


def signed(conditions: Mapping[str, Any]) -> str:
    """Conditions in one line."""
    return ", ".join(f"{name} {_said(value)}" for name, value in conditions.items())


def versions() -> dict[str, str]:
    """Of what computed: the end of each signature."""
    return {"nmtdeep": __version__, "torch": torch.__version__}


def _cell(value: Any) -> Any:
    """Nine digits tell any two numbers of 32 bits apart."""
    return f"{value:.9g}" if isinstance(value, float) else "" if value is None else value


def _said(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
