"""Tables and lists on a screen or in a log, in one style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nmtdeep.errors import printable


def table(
    headings: Iterable[str],
    rows: Iterable[Sequence[object]],
    *,
    text: int = 1,
    title: str = "",
    note: str = "",
) -> Table:
    """Rows under headings.

    Args:
        text: number of columns on the left that are text, which is folded if the table is wider
            than the screen. The other columns are numbers, aligned right and never broken.
        rows: cells, one for each heading; None is shown as a dash, and rich's `Text` keeps its
            style.
        title: a line above.
        note: a line below.
    """
    result = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        title=Text(printable(title)) if title else None,
        title_justify="left",
        caption=Text(printable(note)) if note else None,
        caption_justify="left",
    )
    for place, heading in enumerate(headings):
        result.add_column(
            Text(printable(heading)),
            justify="left" if place < text else "right",
            no_wrap=place >= text,
            overflow="fold",
        )
    for row in rows:
        cells = ("-" if cell is None else cell for cell in row)
        result.add_row(
            *(cell if isinstance(cell, Text) else Text(printable(str(cell))) for cell in cells)
        )
    return result


def as_lines(result: Table) -> list[str]:
    """A table as lines of plain text for a pipe or a log, not folded or cut off."""
    console = Console(width=10_000, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(result)
    lines = [line.strip("\n").rstrip() for line in captured.get().splitlines()]
    return [line.removeprefix(" ") for line in lines if line]


def screen(stream: TextIO) -> Console:
    """Prints text as it is; a terminal gets its lines broken between words."""
    plain: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False}
    return Console(file=stream, soft_wrap=not stream.isatty(), **plain)


def describe(lines: Sequence[tuple[str, str]]) -> str:
    """Names and values in two aligned columns."""
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
