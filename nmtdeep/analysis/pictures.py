"""The two pictures of rows, curves and heat maps, readable in black and white.

`save` and `render` call a measurement's `draw` within the style. matplotlib is an extra, and
imported there.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from nmtdeep.analysis.measurement import Measurement, columns, grouped, roles
from nmtdeep.errors import printable
from nmtdeep.files import replace_file

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    Figure = matplotlib.figure.Figure

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
LETTER = 0.09  # inches
MINUS = "\N{MINUS SIGN}"
MARKED = 30  # with more points, only some have a marker
NAMED = 45  # with more rows or columns, only some are labeled


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


def lines(figure: Figure, measurement: Measurement) -> None:
    """Curves, with gaps where there is no value; a curve has the same style in all panels."""
    rows = measurement.drawn or measurement.rows
    described, role = columns(rows), roles(rows)
    x, curves = measurement.x or role["x"][0], grouped(rows, *role["curve"])
    named = [name for name in role["curve"] if len(grouped(rows, name)) > 1]
    measured = [name for name in role["y"] if any(getattr(row, name) is not None for row in rows)]
    panels = [*product(measured, grouped(rows, *role["panel"]))]
    wide = 1 if len(panels) <= 3 else 2
    every = _grid(figure, measurement.title, len(panels), wide=wide, size=(9.0 - 2 * wide, 2.8))
    every[0].locator_params(axis="x", integer=True)
    for axes, (name, part) in zip(every, panels, strict=True):
        if axes is not every[0]:
            axes.sharex(every[0])
        for own in curves.values():
            each = ((described[of].label, getattr(own[0], of)) for of in named)
            label = ", ".join(v if isinstance(v, str) else f"{text} {v}" for text, v in each)
            shown = [row for row in own if part == tuple(getattr(row, of) for of in role["panel"])]
            # A marker on every point, or on so many that they stay apart along the curve.
            marked = None if len(shown) < MARKED else 1 / MARKED
            places, values = ([getattr(row, of) for row in shown] for of in (x, name))
            axes.plot(places, values, label=printable(label), markevery=marked)
        column = measurement.panels.get(part[0]) if part else None
        label = column.axis if column else ", ".join([described[name].axis, *part])
        axes.set(xlabel=described[x].axis, ylabel=label)
        if (column or described[name]).log:
            log_scale(axes)
        if described[x].log:
            log_scale(axes, "x")


def heat_maps(figure: Figure, measurement: Measurement) -> None:
    """Maps in which darker is larger, a minus marks negative numbers and no value is blank."""
    from matplotlib.colors import PowerNorm

    rows = measurement.rows
    described, role = columns(rows), roles(rows)
    places, maps = [*role["panel"], *role["row"], *role["x"]], grouped(rows, *role["panel"])
    drawn, value = measurement.drawn, attrgetter(*role["y"])
    found = {
        place: value(*own)
        for place, own in grouped(rows if drawn is None else drawn, *places).items()
    }
    down, across = (len(grouped(rows, *role[of])) for of in ("row", "x"))
    size, wide = (0.25 * across + 2.8, 0.25 * down + 1.6), min(4, math.ceil(len(maps) / 3))
    every = _grid(figure, measurement.title, len(maps), wide=wide, size=size)
    for axes, (part, own) in zip(every, maps.items(), strict=True):
        below, beside = [*grouped(own, *role["row"])], sorted(grouped(own, *role["x"]))
        cells = [[found.get((*part, *row, *column)) for column in beside] for row in below]
        numbers = np.array(cells, dtype=float)
        sizes = np.abs(numbers)
        most = float(np.nanmax(sizes)) if np.isfinite(sizes).any() else 1.0
        image = axes.imshow(sizes, cmap="Greys", norm=PowerNorm(0.5, vmin=0, vmax=most or 1.0))
        negative = np.argwhere(numbers < 0)
        for row, column in negative:
            color = "1.0" if sizes[row, column] > most / 3 else "0.0"
            axes.annotate(MINUS, (column, row), ha="center", va="center", color=color)
        figure.colorbar(image, ax=axes, label=f"size ({MINUS}: negative)" if len(negative) else "")
        axes.spines[:].set_visible(True)
        axes.set(ylabel=described[role["row"][-1]].axis, xlabel=described[role["x"][-1]].axis)
        title = ", ".join(f"{described[of].label}: {getattr(own[0], of)}" for of in role["panel"])
        axes.set_title(printable(title))
        name_ticks(axes.yaxis, [str(place[-1]) for place in below])
        name_ticks(axes.xaxis, [str(place[-1]) for place in beside])
        axes.tick_params(axis="x", rotation=90 if isinstance(beside[0][-1], str) else 0)


def _grid(
    figure: Figure, title: str, count: int, *, wide: int, size: tuple[float, float]
) -> list[Axes]:
    """Axes of a size in inches for so many panels, below a title."""
    tall = math.ceil(count / wide)
    figure.set_size_inches(min(size[0] * wide, 50), min(size[1] * tall, 50))
    figure.suptitle("\n".join(textwrap.wrap(printable(title), int(size[0] * wide / LETTER))))
    return [figure.add_subplot(tall, wide, number) for number in range(1, count + 1)]


def log_scale(axes: Axes, of: Literal["x", "y"] = "y") -> None:
    """A logarithmic axis with plain numbers, where matplotlib writes a formula."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set(**{f"{of}scale": "log"})
    axis = axes.xaxis if of == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def name_ticks(axis: Axis, names: Sequence[str]) -> None:
    """Name the places 0, 1, ... of an axis; every second, third, ... where there are too many."""
    step = math.ceil(len(names) / NAMED)
    labels = [printable(name) for name in names[::step]]
    axis.set_ticks(range(0, len(names), step), labels, fontsize="small")


def _add_legend(figure: Figure) -> None:
    """The legend of the first panel below all of them; none where it would have one entry."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if len(labels) < 2:
        return
    width, height = figure.get_size_inches()
    wide = max(1, min(4, len(labels), int(width / (LETTER * max(map(len, labels)) + 0.6))))
    figure.set_figheight(height + 0.2 * math.ceil(len(labels) / wide))
    figure.legend(handles, labels, loc="outside lower center", ncols=wide)
