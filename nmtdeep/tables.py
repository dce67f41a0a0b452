"""Tables and lists on a screen or in a log, in one style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmtdeep.errors import printable


def table(
    columns: Mapping[str, str], rows: Iterable[Sequence[object]], *, title: str = "", note: str = ""
) -> Table:
    """Rows under headings.

    Args:
        columns: alignment of each heading's cells, `left` or `right`. Cells on the right are
            numbers, which are never broken. Cells on the left are folded if the table is wider than
            the screen.
        rows: cells, one for each heading; None is shown as a dash, and rich's `Text` keeps its
            style.
        title: a line above.
        note: a line below.
    """
    made = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=Text(printable(title)) if title else None,
        title_justify="left",
        caption=Text(printable(note)) if note else None,
        caption_justify="left",
    )
    for heading, side in columns.items():
        right = side == "right"
        made.add_column(
            Text(printable(heading)),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    for row in rows:
        cells = ("-" if cell is None else cell for cell in row)
        made.add_row(
            *(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in cells)
        )
    return made


def as_lines(made: Table) -> list[str]:
    """A table as lines of plain text for a pipe or a log, not folded or cut off."""
    console = Console(width=10_000, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(made)
    lines = [line.strip("\n").rstrip() for line in captured.get().splitlines()]
    return [line.removeprefix(" ") for line in lines if line]


def describe(lines: Sequence[tuple[str, str]]) -> str:
    """Names and values in two aligned columns."""
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
