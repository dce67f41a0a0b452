"""The result of every analysis: rows, the conditions that they depend on, tables, a picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from pydantic import BaseModel
from rich.table import Table

from nmtdeep import __version__
from nmtdeep.checkpoint import Loaded
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.files import replace_file

if TYPE_CHECKING:
    from nmtdeep.analysis.pictures import Figure

T = TypeVar("T")


@dataclass(frozen=True)
class Measurement:
    """The result of an analysis.

    Attributes:
        rows: named tuples of one kind; a CSV has a line for each.
        conditions: what the rows depend on, by name; a mapping for each model.
        tables: what is printed of the rows.
        draw: draws the rows on an empty figure.
    """

    rows: Sequence[Any]
    conditions: Mapping[str, Any]
    tables: Sequence[Table]
    draw: Callable[[Figure], object]

    @property
    def signature(self) -> str:
        """The conditions as text: a line for each model, then a line of the common ones."""
        each = self.conditions.items()
        models = [f"{name}: {one_line(own)}" for name, own in each if isinstance(own, Mapping)]
        common = {name: value for name, value in each if not isinstance(value, Mapping)}
        return "\n".join([*models, one_line(common)])

    def as_json(self) -> dict[str, Any]:
        """All numbers, for `json.dumps`."""
        return {"conditions": dict(self.conditions), "rows": [row._asdict() for row in self.rows]}

    def write_csv(self, path: Path) -> None:
        """Write a line for each row under a header; the cell of a None is empty."""
        with replace_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.rows[0]._fields, *self.rows])


def grouped(rows: Iterable[T], *columns: str) -> dict[Any, list[T]]:
    """Rows by the value in a column, or by the tuple of values in several; in order."""
    groups: dict[Any, list[T]] = {}
    for row in rows:
        groups.setdefault(attrgetter(*columns)(row), []).append(row)
    return groups


def fixed(row: object, columns: Iterable[str]) -> list[str | None]:
    """Cells of a table: some columns of a row with three decimals."""
    values = [getattr(row, column) for column in columns]
    return [None if value is None else f"{value:.3f}" for value in values]


def one_line(conditions: Mapping[str, Any]) -> str:
    """Names and values with commas between them."""
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in conditions.items()
    )


def typed(section: BaseModel) -> str:
    """The type and the settings of a recipe's section that has a type."""
    settings = section.model_dump()
    kind = str(settings.pop("type"))
    return " ".join([kind, *(f"{key}={value}" for key, value in settings.items())])


def versions() -> dict[str, str]:
    """The programs that computed the rows; the last of the conditions."""
    return {"nmtdeep": __version__, "torch": torch.__version__}


def origin(loaded: Loaded) -> dict[str, Any]:
    """The checkpoint that the weights of a trained model come from."""
    state = loaded.state
    trained = {"update": state["update"]} if "update" in state else {"kind": state.get("kind")}
    return {"checkpoint": loaded.path.name, **trained, "text": loaded.pipeline.fingerprint()[:16]}


def check_same_text(loaded: Loaded, data: DataDirectory) -> None:
    """Raise UserError if the ids of `data` mean other subwords to the model than to `data`."""
    if loaded.pipeline.fingerprint() != data.fingerprint:
        what = f"the model was trained with another vocabulary than that of {data.path}"
        hint = "pass the data directory that the model was trained on"
        raise UserError(what, where=loaded.path, hint=hint)
