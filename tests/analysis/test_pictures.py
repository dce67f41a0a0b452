"""Pictures: whole files that parse, black and white, with every label as it was given."""

import xml.etree.ElementTree as ET
from io import BytesIO
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.typing import NDArray

from nmtdeep.analysis.measurement import Column, Measurement
from nmtdeep.analysis.pictures import render


class Norm(NamedTuple):
    run: Annotated[str, Column("run", role="curve")]
    layer: Annotated[int, Column("layer", role="x")]
    norm: Annotated[float | None, Column("$norm$", "nats", role="y", log=True)]


class Weight(NamedTuple):
    stack: Annotated[str, Column("stack", role="panel")]
    reader: Annotated[str, Column("read by", role="row")]
    entry: Annotated[str, Column("output", role="x")]
    weight: Annotated[float | None, Column("weight", role="y")]


def curves(**runs: Any) -> Measurement:
    """A curve of norms for each run."""
    rows = [Norm(name, n, y) for name, norms in runs.items() for n, y in enumerate(norms, start=1)]
    return Measurement("norms of <b>", rows, {})


# Names are formulas, markup and control characters.
LINES = curves(**{"run $1$": (1.0, 10.0, None, 0.1), "b\x1b[31m": (3.0, 4.0)})
MATRIX = [("$a$", "x&y", 0.5), ("<b>", "x&y", 0.0), ("<b>", "</s>", -0.25), ("c", "</s>", None)]
MAP = Measurement("weights", [Weight("encoder", *cell) for cell in MATRIX], {})
ONE = curves(one=(0.45, 0.7, 0.9))


def texts(svg: bytes) -> list[str]:
    return [
        "".join(element.itertext()).strip()
        for element in ET.fromstring(svg).iter()
        if "text" in element.tag
    ]


def pixels(png: bytes) -> NDArray[np.float32]:
    return np.asarray(imread(BytesIO(png))[..., :3])


def test_every_label_is_in_the_svg_as_it_is():
    labels = set(texts(render(LINES.draw, "svg")))
    assert {"run $1$", "b\\x1b[31m", "layer", "$norm$ (nats)", "norms of <b>"} <= labels
    assert not any("mathdefault" in label for label in labels)
    labels = set(texts(render(MAP.draw, "svg")))
    assert {"$a$", "<b>", "c", "x&y", "</s>", "weights", "stack: encoder"} <= labels
    assert {"read by", "output", "\N{MINUS SIGN}"} <= labels  # a minus on the negative weight


def test_a_logarithmic_axis_is_labeled_in_plain_numbers():
    labels = [label for label in texts(render(ONE.draw, "svg")) if label.startswith("0.")]
    assert "0.6" in labels
    assert {float(label) for label in labels} <= {number / 20 for number in range(8, 20)}
    decades = texts(render(curves(one=(1e-4, 1.0, 100.0)).draw, "svg"))
    assert {"0.001", "0.3", "100"} <= set(decades)


def test_rows_are_cells_and_those_that_are_not_drawn_are_blank():
    figure = Figure()
    hidden = Measurement("weights", MAP.rows, {}, drawn=MAP.rows[:3])
    for measurement in (MAP, hidden):
        figure = Figure()
        measurement.draw(figure)
        sizes = np.ma.filled(figure.axes[0].images[0].get_array().astype(float), np.nan)
        # Columns are sorted, rows in order.
        expected = [[np.nan, 0.5], [0.25, 0.0], [np.nan, np.nan]]
        np.testing.assert_array_equal(sizes, expected)


def test_a_curve_has_one_style_in_all_panels():
    class Figures(NamedTuple):
        model: Annotated[str, Column("model", role="curve")]
        side: Annotated[str, Column("side", role="panel")]
        layer: Annotated[int, Column("layer", role="x")]
        norm: Annotated[float, Column("norm", role="y")]

    rows = [
        Figures("first", "encoder", 1, 1.0),
        Figures("second", "encoder", 1, 2.0),
        Figures("second", "decoder", 1, 3.0),
    ]
    figure = Figure()
    Measurement("norms", rows, {}).draw(figure)
    styles = [[(line.get_color(), line.get_label()) for line in axes.lines] for axes in figure.axes]
    assert styles[0] == styles[1]
    assert [axes.get_ylabel() for axes in figure.axes] == ["norm, encoder", "norm, decoder"]


def test_equal_rows_give_an_equal_file():
    assert render(LINES.draw, "svg") == render(LINES.draw, "svg")
    assert render(LINES.draw, "svg") != render(curves(one=(1, 2, 3)).draw, "svg")


@pytest.mark.parametrize("measurement", [LINES, MAP])
def test_pictures_have_no_colors(measurement):
    picture = pixels(render(measurement.draw, "png"))
    assert (picture.max(axis=2) - picture.min(axis=2)).max() < 0.02
    assert picture.min() < 0.1


@pytest.mark.parametrize(
    ("points", "least", "most"), [(1, 1, 1), (2, 2, 2), (20, 20, 20), (500, 10, 60)]
)
def test_short_curves_have_a_marker_on_every_point(points, least, most):
    """A training of a few minutes has one validation; a curve of one point has no line."""
    drawn = curves(one=tuple(1 + place / points for place in range(points)))
    svg = render(drawn.draw, "svg")
    groups = [each for each in ET.fromstring(svg).iter() if each.get("clip-path")]
    marks = [part for group in groups for part in group.iter() if part.tag.endswith("use")]
    assert least <= len(marks) <= most
