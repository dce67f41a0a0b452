"""The result of every analysis: rows of described columns, and what is made of them."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel
from rich.table import Table

from nmtdeep import __version__, tables
from nmtdeep.errors import UserError
from nmtdeep.files import replace_file

if TYPE_CHECKING:
    from nmtdeep.analysis.pictures import Figure
    from nmtdeep.checkpoint import Loaded
    from nmtdeep.data.corpus import DataDirectory

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """What a column of rows holds.

    Attributes:
        label: heading of a table, and of an axis with the `unit`.
        role: in a picture. It has a panel for each value of the columns `panel` and for each column
            `y`, and a curve in it for each value of the columns `curve`; or, if there are columns
            `row`, a heat map of `y`, where the last of several columns `row` or `x` has the names.
        log: whether its axis is logarithmic.
    """

    label: str
    unit: str = ""
    role: Literal["", "x", "y", "row", "curve", "panel"] = ""
    log: bool = False

    @property
    def axis(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Measurement:
    """The result of an analysis.

    Attributes:
        title: of the picture.
        rows: named tuples of one kind, whose annotations may have a `Column`.
        conditions: what the rows depend on, by name; a mapping for each model.
        summary: cells of the table's rows by heading; None: those of all rows.
        form: format of fractions in the table.
        apart: the heading whose values have a table each, as its title.
        note: a line below each table.
        drawn: the rows in the picture; None: all.
        x: the column `x` of the picture, if its rows have several.
        panels: what the rows with a value in the column `panel` hold, if not the same.
    """

    title: str
    rows: Sequence[Any]
    conditions: dict[str, Any]
    summary: Sequence[Mapping[str, object]] | None = None
    form: str = ".3f"
    apart: str = ""
    note: str = ""
    drawn: Sequence[Any] | None = None
    x: str = ""
    panels: Mapping[str, Column] = field(default_factory=dict)

    def draw(self, figure: Figure) -> None:
        """Draw the picture on an empty figure."""
        from nmtdeep.analysis.pictures import heat_maps, lines

        (heat_maps if "row" in roles(self.rows) else lines)(figure, self)

    @property
    def signature(self) -> str:
        """The conditions as text: a line for each model, then a line of the common ones."""
        each = self.conditions.items()
        models = [f"{name}: {one_line(own)}" for name, own in each if isinstance(own, Mapping)]
        common = {name: value for name, value in each if not isinstance(value, Mapping)}
        return "\n".join([*models, one_line(common | versions())])

    @property
    def tables(self) -> list[Table]:
        """The tables; none if there are no rows."""
        labels = [column.label for column in columns(self.rows).values()]
        everything = [dict(zip(labels, row, strict=True)) for row in self.rows]
        shown = everything if self.summary is None else self.summary
        parts: dict[object, list[dict[str, object]]] = {}
        for row in map(dict, shown):
            parts.setdefault(row.pop(self.apart, ""), []).append(row)
        return [self._table(str(title), part) for title, part in parts.items()]

    def _table(self, title: str, rows: list[dict[str, object]]) -> Table:
        cells = [list(map(self._cell, row.values())) for row in rows]
        names = len([*takewhile(lambda cell: isinstance(cell, str), rows[0].values())])
        return tables.table([*rows[0]], cells, text=names, title=title, note=self.note)

    def _cell(self, value: object) -> object:
        if isinstance(value, float):
            return f"{value:{self.form}}".rstrip(".")
        return f"{value:,}" if isinstance(value, int) else value

    def as_json(self) -> dict[str, Any]:
        """All numbers, for `json.dumps`."""
        found = columns(self.rows).items()
        described = {name: {"label": each.label, "unit": each.unit} for name, each in found}
        rows = [row._asdict() for row in self.rows]
        return {"conditions": self.conditions | versions(), "columns": described, "rows": rows}

    def write_csv(self, path: Path) -> None:
        """Write a line for each row under a header; the cell of a None is empty."""
        with replace_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self.rows[0]._fields, *self.rows])


def columns(rows: Sequence[Any]) -> dict[str, Column]:
    """The columns of rows by name, as the annotations of their class describe them."""
    hints = get_type_hints(type(rows[0]), include_extras=True)
    return {
        name: getattr(hint, "__metadata__", (Column(name.replace("_", " ")),))[0]
        for name, hint in hints.items()
    }


def roles(rows: Sequence[Any]) -> dict[str, list[str]]:
    """The names of the columns that have a role, by role."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, column in columns(rows).items():
        found[column.role].append(name)
    return found


def grouped(rows: Iterable[T], *names: str) -> dict[tuple[Any, ...], list[T]]:
    """Rows by their values in some columns; in order."""
    groups: dict[tuple[Any, ...], list[T]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    return groups


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
    """The programs that computed the rows."""
    return {"nmtdeep": __version__, "torch": version("torch")}


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
