"""The style of all pictures, readable in black and white, and plots that several analyses draw.

`save` and `render` call a measurement's `draw` within the style. matplotlib is an extra, and
imported there.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nmtdeep.errors import printable
from nmtdeep.files import replace_file

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    Figure = matplotlib.figure.Figure

Groups = Mapping[str, Sequence[Any]]  # rows by the label of their curve
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "nmtdeep",  # no random ids, so equal rows make equal files
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is not a formula
    "axes.spines.top": False,
    "axes.spines.right": False,
    # A style for each of eight curves: black or gray, a kind of line, and a marker.
    "axes.prop_cycle": (
        "cycler(color=['0.0', '0.45'] * 4, linestyle=['-', '--', ':', '-.'] * 2, "
        "marker=['o', 's', '^', 'D', 'v', 'x', '+', '*'])"
    ),
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.constrained_layout.wspace": 0.08,
    "legend.frameon": False,
    "lines.linewidth": 1,
    "lines.markersize": 4,
    "savefig.dpi": 150,
}
# Without a date; `cli/outputs.py` recognizes its own pictures by the program.
MADE_BY = "made by nmtdeep"
METADATA: dict[str, dict[str, str | None]] = {
    "svg": {"Creator": MADE_BY, "Date": None},
    "pdf": {"Creator": MADE_BY, "CreationDate": None},
    "png": {"Software": MADE_BY},
}
BARS: dict[str, Any] = {"color": "0.8", "edgecolor": "0.0", "linewidth": 0.6}
LETTER = 0.09  # inches
MINUS = "\N{MINUS SIGN}"
MARKED = 30  # with more points, only some have a marker
NAMED = 45  # with more rows, columns or bars, only some are labeled


def save(draw: Callable[[Figure], object], path: Path) -> None:
    """Write what `draw` draws to `path`, which ends in .svg, .png or .pdf."""
    content = render(draw, path.suffix[1:])
    with replace_file(path) as partial:
        partial.write_bytes(content)


def render(draw: Callable[[Figure], object], form: str) -> bytes:
    """The file of a picture, svg, png or pdf, with one legend for all its panels.

    Characters that matplotlib's font lacks are boxes in png and pdf; an svg keeps them as text.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(layout="constrained")
        draw(figure)
        _add_legend(figure)
        buffer = BytesIO()
        figure.savefig(buffer, format=form, metadata=METADATA[form])
    return buffer.getvalue()


@dataclass(frozen=True)
class Panel:
    """One column of the rows that have the values `only` in others; bars are of the first group."""

    label: str
    y: str
    only: Mapping[str, object] = field(default_factory=dict)
    kind: Literal["curves", "log", "bars"] = "curves"


def plot(
    figure: Figure, groups: Groups, *, over: Sequence[Panel], x: str, label: str = ""
) -> list[Axes]:
    """Panels with a curve for each group of rows, over the column `x`."""
    every = panels(figure, len(over))
    for axes, panel in zip(every, over, strict=True):
        y, only = panel.y, panel.only
        own = {
            group: [row for row in rows if all(getattr(row, key) == only[key] for key in only)]
            for group, rows in groups.items()
        }
        if panel.kind == "bars":
            points = [(getattr(row, x), getattr(row, y)) for row in next(iter(own.values()))]
            axes.bar(*zip(*points, strict=True), **BARS)
        else:
            curves(axes, own, x, y)
        axes.set_xlabel(label or x)
        axes.set_ylabel(panel.label, parse_math=True)
        if panel.kind == "log":
            log_scale(axes)
    return every


def panels(figure: Figure, count: int) -> list[Axes]:
    """Axes for curves with one range of x: up to three below one another, more in two columns."""
    columns = 1 if count <= 3 else 2
    rows = math.ceil(count / columns)
    figure.set_size_inches(*((8.0, 3.0 * rows) if columns == 1 else (9.2, 2.6 * rows)))
    first = figure.add_subplot(rows, columns, 1)
    first.locator_params(axis="x", integer=True)
    others = range(2, count + 1)
    return [first, *(figure.add_subplot(rows, columns, n, sharex=first) for n in others)]


def curves(axes: Axes, groups: Groups, x: str, y: str) -> None:
    """A curve for each group of rows, with gaps where `y` is None and a marker on some points.

    Panels with equal groups have equal styles: a curve that a panel lacks is a group without rows.
    """
    for label, rows in groups.items():
        points = [(getattr(row, x), getattr(row, y)) for row in rows]
        places, values = zip(*points, strict=True) if points else ((), ())
        # Every point, or so many that they stay apart along the curve, which needs two points.
        every = None if len(points) < MARKED else 1 / MARKED
        axes.plot(places, values, label=printable(label), markevery=every)


def log_scale(axes: Axes, of: Literal["x", "y"] = "y") -> None:
    """A logarithmic axis with plain numbers, where matplotlib writes a formula."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        """0.6 for every place that would have a formula."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axes.set(**{f"{of}scale": "log"})
    axis = axes.xaxis if of == "x" else axes.yaxis
    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))


def heat_map(
    axes: Axes, values: Sequence[Any], *, rows: Sequence[str], columns: Sequence[str], title: str
) -> None:
    """A matrix, None a blank cell: darker is larger, and a minus marks negative numbers."""
    from matplotlib.colors import PowerNorm

    numbers = np.array(values, dtype=float)
    sizes = np.abs(numbers)
    most = float(np.nanmax(sizes)) if np.isfinite(sizes).any() else 1.0
    image = axes.imshow(sizes, cmap="Greys", norm=PowerNorm(0.5, vmin=0, vmax=most or 1.0))
    negative = np.argwhere(np.nan_to_num(numbers) < 0)
    for row, column in negative:
        color = "1.0" if sizes[row, column] > most / 3 else "0.0"
        axes.annotate(MINUS, (column, row), ha="center", va="center", color=color)
    letters = int(heat_map_size(rows, columns)[0] / LETTER)
    axes.set_title("\n".join(textwrap.wrap(printable(title), letters)))
    name_ticks(axes.yaxis, rows)
    name_ticks(axes.xaxis, columns, rotation=90 if max(map(len, columns)) > 2 else 0)
    axes.spines[:].set_visible(True)
    axes.set_anchor("W")
    bar = axes.inset_axes((1 + 0.5 / len(columns), 0, 0.5 / len(columns), 1))
    label = f"size ({MINUS}: negative)" if len(negative) else ""
    axes.figure.colorbar(image, cax=bar, label=label)


def heat_map_size(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    """Width and height in inches of a heat map of these rows and columns with its labels."""
    width = 0.22 * len(columns) + 0.07 * max(map(len, rows)) + 1.8
    height = 0.22 * len(rows) + 0.07 * max(map(len, columns)) + 1.0
    return min(max(width, 3.5), 16), min(max(height, 2.2), 16)


def name_ticks(axis: Axis, names: Sequence[str], rotation: float = 0) -> None:
    """Name the places 0, 1, ... of an axis; every second, third, ... where there are too many."""
    step = math.ceil(len(names) / NAMED)
    labels = [printable(name) for name in names[::step]]
    axis.set_ticks(range(0, len(names), step), labels, fontsize="small", rotation=rotation)


def _add_legend(figure: Figure) -> None:
    """One legend above all panels; none where it would have a single entry."""
    curves = (zip(*axes.get_legend_handles_labels(), strict=True) for axes in figure.axes)
    entries = {label: handle for of_axes in curves for handle, label in of_axes}
    if len(entries) < 2:
        return
    width, height = figure.get_size_inches()
    longest = max(map(len, entries))
    columns = max(1, min(4, len(entries), int(width / (LETTER * longest + 0.6))))
    figure.set_figheight(height + 0.2 * math.ceil(len(entries) / columns))
    figure.legend(list(entries.values()), list(entries), loc="outside upper center", ncols=columns)
