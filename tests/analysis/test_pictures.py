"""Pictures: whole files that parse, black and white, with every label as it was given."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from io import BytesIO
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.typing import NDArray

from nmtdeep.analysis.pictures import curves, heat_map, log_scale, panels, render

MATRIX = [[0.5, None], [0.0, -0.25]]


class Row(NamedTuple):
    layer: int
    norm: float | None


def rows(*norms: float | None) -> list[Row]:
    return [Row(layer, norm) for layer, norm in enumerate(norms, start=1)]


def draw(figure: Figure, y: tuple[float | None, ...] = (1.0, 10.0, None, 0.1)) -> None:
    """Two curves and a heat map, whose names are formulas, markup and control characters."""
    axes, cells = figure.subplots(2)
    groups = {"run $1$": rows(*y), "lacking": [], "b\x1b[31m": rows(3.0, 4.0)}
    curves(axes, groups, "layer", "norm")
    axes.set(xlabel="layer", ylabel="$norm$")
    log_scale(axes)
    heat_map(cells, MATRIX, rows=["$a$", "<b>"], columns=["x&y", "</s>"], title="weights")


def curve(figure: Figure, y: tuple[float, ...] = (0.45, 0.7, 0.9)) -> None:
    """One curve, with a formula at its axis."""
    (axes,) = panels(figure, 1)
    curves(axes, {"the only one": rows(*y)}, "layer", "norm")
    log_scale(axes)
    axes.set_ylabel(r"$\beta_\mathrm{LN}$, encoder", parse_math=True)


def texts(svg: bytes) -> list[str]:
    return [
        "".join(element.itertext()).strip()
        for element in ET.fromstring(svg).iter()
        if "text" in element.tag
    ]


def pixels(png: bytes) -> NDArray[np.float32]:
    return np.asarray(imread(BytesIO(png))[..., :3])


def test_every_label_is_in_the_svg_as_it_is() -> None:
    labels = texts(render(draw, "svg"))
    expected = {"run $1$", "b\\x1b[31m", "$a$", "<b>", "x&y", "</s>", "weights", "layer", "$norm$"}
    assert expected <= set(labels)
    assert "\N{MINUS SIGN}" in labels  # on the negative weight
    assert not any("mathdefault" in label for label in labels)


def test_a_formula_is_set_as_a_formula_and_one_curve_needs_no_legend() -> None:
    labels = texts(render(curve, "svg"))
    formula = next(label for label in labels if "β" in label)
    assert not {"beta", "$", "_"} & {formula, *formula}
    assert "the only one" not in labels


def test_a_logarithmic_axis_is_labeled_in_plain_numbers() -> None:
    labels = [label for label in texts(render(curve, "svg")) if label.startswith("0.")]
    assert "0.6" in labels
    assert {float(label) for label in labels} <= {number / 10 for number in range(4, 10)}


def test_a_group_without_rows_keeps_the_styles_of_the_others() -> None:
    styles = []
    for group in (rows(1.0), []):
        axes = Figure().subplots()
        curves(axes, {"first": group, "second": rows(2.0)}, "layer", "norm")
        styles.append([(line.get_color(), line.get_label()) for line in axes.lines])
    assert styles[0] == styles[1]


def test_equal_rows_give_an_equal_file() -> None:
    assert render(draw, "svg") == render(draw, "svg")
    assert render(draw, "svg") != render(partial(draw, y=(1, 2, 3)), "svg")


def test_pictures_have_no_colors() -> None:
    picture = pixels(render(draw, "png"))
    assert (picture.max(axis=2) - picture.min(axis=2)).max() < 0.02
    assert picture.min() < 0.1


@pytest.mark.parametrize(
    ("points", "least", "most"), [(1, 1, 1), (2, 2, 2), (20, 20, 20), (500, 10, 60)]
)
def test_short_curves_have_a_marker_on_every_point(points: int, least: int, most: int) -> None:
    """A training of a few minutes has one validation; a curve of one point has no line."""
    draw = partial(curve, y=tuple(1 + place / points for place in range(points)))
    groups = [each for each in ET.fromstring(render(draw, "svg")).iter() if each.get("clip-path")]
    marks = [part for group in groups for part in group.iter() if part.tag.endswith("use")]
    assert least <= len(marks) <= most
