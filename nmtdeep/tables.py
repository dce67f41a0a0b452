"""Tables and lists on a screen or in a log, in one style."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal, TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from nmtdeep.errors import printable

# Least width of a column of text on a screen, and the width of a pipe or a file.
FOLDED, WIDE = 20, 10_000
# What the rest of a broken line is indented by: spaces, an arrow, or a name and two spaces.
_START = re.compile(r" +(-> )?|\S+( \S+)* {2,}")


class _Fitted(Table):
    """A table between a title and a note.

    On a screen that is too narrow for it, each number has a line of its own with its heading, below
    the texts of its row.

    Attributes:
        cells: by row.
        texts: number of columns of text.
        least: width of a screen that holds the table.
    """

    above: Text
    below: Text
    cells: list[list[Text]]
    texts: int
    least = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.above:
            yield self.above
        if self.least <= options.max_width:
            yield from super().__rich_console__(console, options)
        else:
            yield from self._numbers()
        if self.below:
            yield self.below

    def _numbers(self) -> Iterator[Text]:
        headings = [str(column.header) for column in self.columns[self.texts :]]
        for row in self.cells:
            name, numbers = row[: self.texts], row[self.texts :]
            yield Text("  ").join(name)
            for heading, number in zip(headings, numbers, strict=True):
                yield Text.assemble("  ", heading, " ", number)


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
    result = _Fitted(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    result.above = Text(printable(title), "table.title")
    result.below = Text(printable(note), "table.caption")
    result.cells, result.texts = [[_cell(each) for each in row] for row in rows], text
    for place, heading in enumerate(headings):
        column = [_cell(heading), *(row[place] for row in result.cells)]
        is_text = place < text
        parts = (cell.plain.split() if is_text else [cell.plain] for cell in column)
        longest = max(map(cell_len, chain(*parts)), default=0)
        result.least += 2 + (min(longest, FOLDED) if is_text else longest)
        justify: Literal["left", "right"] = "left" if is_text else "right"
        result.add_column(column[0], justify=justify, no_wrap=not is_text, overflow="fold")
    for row in result.cells:
        result.add_row(*row)
    return result


def _cell(value: object) -> Text:
    return (
        value if isinstance(value, Text) else Text(printable("-" if value is None else str(value)))
    )


def show(*parts: RenderableType, console: Console | None = None) -> None:
    """Print tables and text: fitted to a terminal, or as plain lines of any length."""
    console = console or Console()
    for part in parts:
        if console.is_terminal and not isinstance(part, str):
            console.print(part)
            continue
        lines = part if isinstance(part, str) else "\n".join(_plain(part))
        lines = _fitted(lines, console.width) if console.is_terminal else lines
        console.print(lines, soft_wrap=True, markup=False, highlight=False, emoji=False)


def as_lines(result: Table) -> list[str]:
    """A table as lines of plain text for a pipe or a log, not folded or cut off."""
    return [line.removeprefix(" ") for line in _plain(result) if line]


def _plain(part: RenderableType) -> list[str]:
    console = Console(width=WIDE, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(part)
    return [line.rstrip() for line in captured.get().splitlines()]


def columns(stream: TextIO) -> float:
    """Width of a terminal; of a pipe or a file, infinity."""
    return Console(file=stream).width if stream.isatty() else math.inf


def say(text: str, stream: TextIO) -> None:
    """Print text as it is; a terminal gets its lines broken between words."""
    show(text, console=Console(file=stream, force_terminal=stream.isatty()))


def _fitted(text: str, columns: int) -> str:
    """Lines broken between words, the rest of each below its beginning or its value."""
    console = Console(width=columns)
    lines: list[str] = []
    for line in text.split("\n"):
        start = _START.match(line)
        begin = line[: start.end()] if start and cell_len(start[0]) < columns // 2 else ""
        indent = cell_len(begin)
        rest = Text(line[len(begin) :]).wrap(console, columns - indent) or [Text("")]
        pieces = [piece.plain.rstrip() for piece in rest]
        lines.append(begin + f"\n{' ' * indent}".join(pieces))
    return "\n".join(lines)


def describe(lines: Sequence[tuple[str, str]]) -> str:
    """Names and values in two aligned columns."""
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)
