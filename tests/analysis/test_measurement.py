"""Tables, CSV, JSON and pictures of any rows."""

import xml.etree.ElementTree as ET
from io import BytesIO
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from numpy.typing import NDArray

from nmtdeep import __version__
from nmtdeep.analysis.measurement import Column, Measurement
from nmtdeep.analysis.pictures import render
from nmtdeep.tables import as_lines


class Row(NamedTuple):
    model: str
    updates: int
    loss: Annotated[float | None, Column("mean loss", "nats")]


ROWS = [Row("a", 12_000, 0.25), Row("b", 7, None)]
ONE = Measurement("losses", ROWS, {"a": {"seed": 1}, "data": "x"})


def test_a_table_has_all_rows_or_the_summary():
    assert [line.split() for line in as_lines(*ONE.tables)][::2] == [
        ["model", "updates", "mean", "loss"],
        ["a", "12,000", "0.250"],
    ]
    assert as_lines(*ONE.tables)[-1].split() == ["b", "7", "-"]
    summary = [{"model": "a", "best": 12.0}]
    short = Measurement("losses", ROWS, {}, summary, form=".1f", note="the best")
    lines = as_lines(*short.tables)
    assert [lines[0].split(), lines[2].split(), lines[3]] == [
        ["model", "best"], ["a", "12.0"], "the best",
    ]  # fmt: skip
    assert Measurement("losses", ROWS, {}, []).tables == []


def test_csv_and_json_have_every_row_and_the_units(tmp_path):
    ONE.write_csv(tmp_path / "rows.csv")
    assert (tmp_path / "rows.csv").read_text() == "model,updates,loss\na,12000,0.25\nb,7,\n"
    everything = ONE.as_json()
    assert everything["rows"][0] == {"model": "a", "updates": 12_000, "loss": 0.25}
    assert everything["columns"]["loss"] == {"label": "mean loss", "unit": "nats"}
    assert everything["conditions"]["nmtdeep"] == __version__


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


@pytest.mark.parametrize("measurement", [LINES, MAP])
def test_pictures_have_no_colors(measurement):
    picture = pixels(render(measurement.draw, "png"))
    assert (picture.max(axis=2) - picture.min(axis=2)).max() < 0.02
    assert picture.min() < 0.1
