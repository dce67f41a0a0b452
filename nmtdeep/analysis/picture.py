"""Gradient norms as a picture, readable in black and white."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from nmtdeep.analysis.file import replacing
from nmtdeep.analysis.gradients import Point

LINES = (
    {"linestyle": "-", "color": "0.0"},
    {"linestyle": "--", "color": "0.45"},
    {"linestyle": ":", "color": "0.0"},
    {"linestyle": "-.", "color": "0.45"},
)
MARKERS = ("o", "s", "^", "D", "v", "x", "+", "*")

Style = dict[str, Any]


def draw(points: Sequence[Point], path: Path) -> None:
    """Encoder above, decoder below; a line style a recipe, a marker a depth.

    Args:
        points: at least one.
        path: ends in .svg, .png or .pdf.
    """
    recipes = {point.recipe: point.initialiser.split()[0] for point in points}
    lines: dict[str, Style] = dict(zip(recipes, cycle(LINES), strict=False))
    depths = dict.fromkeys(point.depth for point in points)
    markers: dict[int, Style] = {
        depth: {"marker": shape} for depth, shape in zip(depths, cycle(MARKERS), strict=False)
    }
    size: Style = {"markersize": 4, "linewidth": 1}
    # Equal points give an equal file: no random ids, no date.
    with matplotlib.rc_context({"svg.hashsalt": "nmtdeep", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 7), layout="constrained")
        panels: dict[str, Axes] = dict(
            zip(("encoder", "decoder"), figure.subplots(2, 1, sharex=True), strict=True)
        )
        for recipe, depth, side in dict.fromkeys((p.recipe, p.depth, p.side) for p in points):
            curve = [p for p in points if (p.recipe, p.depth, p.side) == (recipe, depth, side)]
            panels[side].plot(
                [point.layer for point in curve],
                [point.gradient_norm for point in curve],
                **size | lines[recipe] | markers[depth],
            )
        for name, panel in panels.items():
            panel.set_yscale("log")
            panel.set_ylabel(f"gradient norm, {name}")
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panels["decoder"].set_xlabel("layer")
        alone: Style = size | {"color": "0.0", "linestyle": ""}
        handles = [
            *(Line2D([], [], **size | lines[name], label=recipes[name]) for name in recipes),
            *(Line2D([], [], **alone | markers[n], label=f"{n} layers") for n in depths),
        ]
        figure.legend(handles=handles, loc="outside right upper")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        with replacing(path) as beside:
            figure.savefig(beside, dpi=150, metadata=metadata)
