"""Panels drawn into a file, readable in black and white: line styles, markers, hatches, grays."""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, assert_never

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatter, MaxNLocator

from nmtdeep.analysis.panels import Bars, Curve, Curves, HeatMap, Panel, Picture
from nmtdeep.errors import printable
from nmtdeep.files import replace_file

Style = dict[str, Any]

LINES: tuple[Style, ...] = (
    {"linestyle": "-", "color": "0.0"},
    {"linestyle": "--", "color": "0.45"},
    {"linestyle": ":", "color": "0.0"},
    {"linestyle": "-.", "color": "0.45"},
)
MARKERS = ("o", "s", "^", "D", "v", "x", "+", "*")
FILLS: tuple[Style, ...] = (
    {"facecolor": "0.8", "hatch": ""},
    {"facecolor": "1.0", "hatch": "///"},
    {"facecolor": "0.45", "hatch": ""},
    {"facecolor": "1.0", "hatch": "..."},
)
SIZE: Style = {"markersize": 4, "linewidth": 1}
NOTHING = "0.8"  # the gray of the hatches where a heat map has no cell
MINUS = "\N{MINUS SIGN}"
DENSE = 25  # points of a curve from which on not all of them get a marker
NAMED = 45  # rows or columns of a heat map that can all be named
# Equal panels give an equal file: no random ids, no date. A dollar sign is no formula.
SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "nmtdeep",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
}


class Plain(LogFormatter):
    """Labels of a logarithmic axis as numbers: 0.6, not 6e-01."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label at `x`; empty where there is to be none."""
        return f"{x:g}".replace("-", MINUS) if super().__call__(x, pos) else ""


def draw(picture: Picture, path: Path) -> None:
    """Draw into `path`, which ends in .svg, .png or .pdf; one legend for all panels.

    Characters that matplotlib's font lacks are boxes in .png and .pdf; an .svg keeps them as text.
    """
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        grid = [
            picture.panels[first : first + picture.columns]
            for first in range(0, len(picture.panels), picture.columns)
        ]
        sizes = [[_size(panel, picture.columns) for panel in row] for row in grid]
        heights = [max(height for _, height in row) for row in sizes]
        width = max(sum(width for width, _ in row) for row in sizes)
        styles = _styles(picture.panels)
        rows = math.ceil(len(styles) / _legend_columns(styles, width)) if styles else 0
        figure = Figure(
            figsize=(width, sum(heights) + 0.2 * rows), layout=ConstrainedLayoutEngine(wspace=0.08)
        )
        axes = _axes(figure, sizes, heights)
        for place, panel in zip(axes, picture.panels, strict=True):
            _panel(figure, place, panel, styles)
        if picture.columns == 1:
            _align(axes, picture.panels)
        if styles:
            figure.legend(
                handles=list(styles.values()),
                labels=[_label(name) for name in styles],
                loc="outside upper center",
                ncols=_legend_columns(styles, width),
                frameon=False,
            )
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with replace_file(path) as beside:
            figure.savefig(beside, dpi=150, metadata=metadata)


def _axes(
    figure: Figure, sizes: Sequence[Sequence[tuple[float, float]]], heights: Sequence[float]
) -> list[Axes]:
    """A place for each panel; panels below one another begin at the left, as wide as they are."""
    alone = all(len(row) == 1 for row in sizes)
    edges = sorted({width for row in sizes for width, _ in row}) if alone else []
    widths = np.diff(edges, prepend=0) if alone else [1.0] * max(map(len, sizes))
    grid = figure.add_gridspec(
        len(sizes), len(widths), height_ratios=heights, width_ratios=list(widths)
    )
    return [
        figure.add_subplot(grid[row, : edges.index(width) + 1] if alone else grid[row, column])
        for row, some in enumerate(sizes)
        for column, (width, _) in enumerate(some)
    ]


def _size(panel: Panel, columns: int) -> tuple[float, float]:
    """Width and height in inches."""
    if isinstance(panel, HeatMap):
        cells = len(panel.columns), len(panel.rows)
        names = max(map(len, panel.rows), default=0), max(map(len, panel.columns), default=0)
        wide, high = (0.22 * cell + 0.07 * name for cell, name in zip(cells, names, strict=True))
        return min(max(wide + 1.8, 3.5), 16), min(max(high + 1.0, 2.2), 16)
    if columns > 1:
        return 4.6, 2.6
    if isinstance(panel, Bars):
        bars = len(panel.groups) * max(len(panel.series), 1)
        return min(max(0.4 * bars + 1.5, 3.5), 8.0), min(0.2 * bars + 1.6, 3.0)
    return 8.0, 3.0


def _styles(panels: Iterable[Panel]) -> dict[str, Artist]:
    """Entries of the legend by name; none where a single thing is shown."""
    found = list(panels)
    curves = [curve for panel in found if isinstance(panel, Curves) for curve in panel.curves]
    series = dict.fromkeys(
        name for panel in found if isinstance(panel, Bars) for name in panel.series if name
    )
    lines, markers = _lines(curves), _markers(curves)
    alone: Style = SIZE | {"color": "0.0", "linestyle": ""}
    handles: dict[str, Artist] = {name: Line2D([], [], **style) for name, style in lines.items()}
    handles |= {name: Line2D([], [], **alone | style) for name, style in markers.items()}
    fills = zip(series, cycle(FILLS), strict=False)
    handles |= {name: Patch(edgecolor="0.0", **style) for name, style in fills}
    return handles if len(handles) > 1 else {}


def _legend_columns(styles: Mapping[str, Artist], width: float) -> int:
    """As many as fit, 0.09 inches a letter."""
    longest = max((len(name) for name in styles), default=0)
    return max(1, min(4, len(styles), int(width / (0.09 * longest + 0.6))))


def _lines(curves: Iterable[Curve]) -> dict[str, Style]:
    """A line style by name, with a marker of its own where markers stand for nothing else."""
    curves = list(curves)
    own = not any(curve.marker for curve in curves)
    names = dict.fromkeys(curve.line for curve in curves)
    return {
        name: SIZE | style | ({"marker": shape} if own else {})
        for name, style, shape in zip(names, cycle(LINES), cycle(MARKERS), strict=False)
    }


def _markers(curves: Iterable[Curve]) -> dict[str, Style]:
    names = dict.fromkeys(curve.marker for curve in curves if curve.marker)
    return {name: {"marker": shape} for name, shape in zip(names, cycle(MARKERS), strict=False)}


def _panel(figure: Figure, axes: Axes, panel: Panel, styles: Mapping[str, Artist]) -> None:
    match panel:
        case Curves():
            _curves(axes, panel, styles)
        case HeatMap():
            _heat_map(figure, axes, panel)
        case Bars():
            _bars(axes, panel)
        case _ as unknown:
            assert_never(unknown)


def _curves(axes: Axes, panel: Curves, styles: Mapping[str, Artist]) -> None:
    for number, curve in enumerate(panel.curves):
        style = dict(SIZE | LINES[0] | {"marker": MARKERS[0]})
        for name in (curve.line, curve.marker):
            known = styles.get(name)
            if isinstance(known, Line2D):
                if name == curve.line:
                    style |= {"linestyle": known.get_linestyle(), "color": known.get_color()}
                style["marker"] = known.get_marker()
        if len(curve.x) > DENSE:
            gap = len(curve.x) // 8
            style["markevery"] = (number * gap // len(panel.curves), gap)
            if len(panel.curves) == 1:
                style["marker"] = ""
        axes.plot(curve.x, curve.y, **style)
    for place in panel.breaks:
        axes.axvline(place, color="0.75", linewidth=0.8, zorder=0)
    if panel.log:
        axes.set_yscale("log")
        # Other formatters write formulas.
        axes.yaxis.set_major_formatter(Plain())
        axes.yaxis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))
    if panel.names:
        axes.set_xticks(range(len(panel.names)), [printable(name) for name in panel.names])
        axes.set_xlim(-0.5, len(panel.names) - 0.5)
    elif panel.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label, parse_math=panel.is_formula)


def _align(axes: Iterable[Axes], panels: Iterable[Panel]) -> None:
    """Curves that stand below one another have one range of x where it means the same."""
    found: dict[str, list[Axes]] = {}
    for place, panel in zip(axes, panels, strict=True):
        if isinstance(panel, Curves) and not panel.names:
            found.setdefault(panel.x_label, []).append(place)
    for places in found.values():
        ends = [end for place in places for end in place.get_xlim()]
        for place in places:
            place.set_xlim(min(ends), max(ends))


def _heat_map(figure: Figure, axes: Axes, panel: HeatMap) -> None:
    """Darker is larger; a minus stands on negative numbers, and hatches where no cell is."""
    values = np.array(
        [[math.nan if value is None else value for value in row] for row in panel.values]
    )
    exists = np.array([[value is not None for value in row] for row in panel.values])
    sizes = np.abs(values)
    most = float(np.nanmax(sizes)) if np.isfinite(sizes).any() else 1.0
    axes.patch.set(hatch="////", edgecolor=NOTHING)
    paper = np.where(exists, 1.0, math.nan)
    axes.imshow(paper, cmap="gray", vmin=0, vmax=1, aspect="auto")
    norm = PowerNorm(0.5, vmin=0, vmax=most or 1.0)
    image = axes.imshow(sizes, cmap="Greys", norm=norm, aspect="auto")
    negative = np.argwhere(np.nan_to_num(values) < 0)
    for row, column in negative:
        color = "1.0" if sizes[row, column] > most / 3 else "0.0"
        axes.annotate(MINUS, (column, row), ha="center", va="center", color=color)
    letters = int(_size(panel, 1)[0] / 0.09)
    title = "\n".join(textwrap.wrap(printable(panel.title), letters))
    axes.set_title(title, fontsize="medium", loc="left")
    axes.set_xlabel(panel.column_label)
    axes.set_ylabel(panel.row_label)
    _name(axes, panel.rows, panel.columns)
    for spine in axes.spines.values():
        spine.set_visible(True)
    figure.colorbar(image, ax=axes, label=f"size ({MINUS}: negative)" if len(negative) else "")


def _name(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    """Names of rows and columns, of every second, third, ... where there are too many."""
    turned = 90 if max(map(len, columns)) > 2 else 0
    for names, put, angle in ((rows, axes.set_yticks, 0), (columns, axes.set_xticks, turned)):
        step = math.ceil(len(names) / NAMED)
        labels = [printable(name) for name in names[::step]]
        put(range(0, len(names), step), labels, fontsize="small", rotation=angle)


def _bars(axes: Axes, panel: Bars) -> None:
    width = 0.8 / max(len(panel.series), 1)
    for number, (values, style) in enumerate(
        zip(panel.series.values(), cycle(FILLS), strict=False)
    ):
        found = [(place, value) for place, value in enumerate(values) if value is not None]
        shift = (number - (len(panel.series) - 1) / 2) * width
        axes.bar(
            [place + shift for place, _ in found],
            [value for _, value in found],
            width,
            edgecolor="0.0",
            linewidth=0.6,
            **style,
        )
    step = math.ceil(len(panel.groups) / NAMED)
    names = [printable(name) for name in panel.groups[::step]]
    axes.set_xticks(range(0, len(panel.groups), step), names)
    axes.set_xlim(-0.5, len(panel.groups) - 0.5)
    axes.axhline(0, color="0.0", linewidth=0.6)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def _label(name: str) -> str:
    """matplotlib leaves out of a legend what starts with an underscore."""
    shown = printable(name)
    return f"\N{ZERO WIDTH SPACE}{shown}" if shown.startswith("_") else shown
