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


def test_equal_rows_give_an_equal_file():
    assert render(LINES.draw, "svg") == render(LINES.draw, "svg")
    assert render(LINES.draw, "svg") != render(curves(one=(1, 2, 3)).draw, "svg")


@pytest.mark.parametrize("measurement", [LINES, MAP])
def test_pictures_have_no_colors(measurement):
    picture = pixels(render(measurement.draw, "png"))
    assert (picture.max(axis=2) - picture.min(axis=2)).max() < 0.02
    assert picture.min() < 0.1
