"""What a picture shows, apart from how it is drawn: curves, heat maps, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """Points joined by a line.

    Attributes:
        line: what its line style stands for.
        marker: what its marker stands for; empty: each line style has a marker of its own.
    """

    x: Sequence[float]
    y: Sequence[float]
    line: str
    marker: str = ""


@dataclass(frozen=True)
class Curves:
    """Curves over the same axes.

    Attributes:
        x_label, y_label: of the axes.
        log: whether the y axis is logarithmic.
        whole: whether x is a count.
        breaks: places on the x axis that are marked.
        names: what stands at x = 0, 1, ... in the place of numbers.
        is_formula: whether `y_label` has formulas between dollar signs.
    """

    curves: Sequence[Curve]
    x_label: str
    y_label: str
    log: bool = False
    whole: bool = True
    breaks: Sequence[float] = ()
    names: Sequence[str] = ()
    is_formula: bool = False


@dataclass(frozen=True)
class HeatMap:
    """A matrix of numbers, of which the sign and the size are shown.

    Attributes:
        values: row by row, the first one on top; None where there is no cell, NaN where the cell
            is left blank.
        rows, columns: their names.
        row_label, column_label: of the axes.
    """

    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    row_label: str
    column_label: str
    title: str


@dataclass(frozen=True)
class Bars:
    """A group of bars for each name, one of each series.

    Attributes:
        series: by name, a number for each group; None for no bar. The empty name has no legend.
    """

    groups: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    x_label: str
    y_label: str


Panel = Curves | HeatMap | Bars


@dataclass(frozen=True)
class Picture:
    """Panels, row by row.

    Attributes:
        columns: how many stand side by side.
    """

    panels: Sequence[Panel]
    columns: int = 1
