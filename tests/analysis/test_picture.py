"""Pictures: whole files that parse, with every label as it was given."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from math import nan
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nmtdeep.analysis.panels import Bars, Curve, Curves, HeatMap, Picture
from nmtdeep.analysis.picture import draw

CURVES = Curves(
    [
        Curve([1, 2, 3], [1.0, 10.0, 0.1], "_run $1$", "6 layers"),
        Curve([1, 2], [3.0, 4.0], "b\x1b[31m", "12 layers"),
    ],
    "layer",
    "norm",
    log=True,
)
MAP = HeatMap(
    [[0.5, None], [nan, -0.25]], ["$a$", "<b>"], ["x&y", "</s>"], "reads", "of", "weights"
)
BARS = Bars(["1-10", "11-20"], {"one": [3, None], "two": [1, 2]}, "words", "BLEU")


def texts(path: Path) -> list[str]:
    return ["".join(one.itertext()).strip() for one in ET.parse(path).iter() if "text" in one.tag]


def test_every_label_stands_in_the_svg_as_it_is(tmp_path: Path) -> None:
    draw(Picture([CURVES, MAP, BARS]), tmp_path / "a.svg")
    found = texts(tmp_path / "a.svg")
    for label in ("6 layers", "12 layers", "b\\x1b[31m", "$a$", "<b>", "x&y", "</s>", "weights"):
        assert label in found
    assert "\N{ZERO WIDTH SPACE}_run $1$" in found
    assert {"one", "two", "1-10", "11-20", "reads", "norm", "BLEU"} <= set(found)
    assert "\N{MINUS SIGN}" in found  # on the negative weight
    assert not [one for one in found if "mathdefault" in one]


def test_a_logarithmic_axis_is_labeled_in_plain_numbers(tmp_path: Path) -> None:
    small = Curves([Curve([1, 2, 3], [0.45, 0.7, 0.9], "")], "update", "loss", log=True)
    draw(Picture([small]), tmp_path / "a.svg")
    labels = [one for one in texts(tmp_path / "a.svg") if one.startswith("0.")]
    assert "0.6" in labels
    assert {float(one) for one in labels} <= {number / 10 for number in range(4, 10)}


def test_one_curve_needs_no_legend(tmp_path: Path) -> None:
    alone = Curves([Curve([1, 2], [1, 2], "the only one")], "update", "loss")
    draw(Picture([alone]), tmp_path / "a.svg")
    assert "the only one" not in texts(tmp_path / "a.svg")


def test_equal_panels_draw_an_equal_file(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        draw(Picture([CURVES, MAP], columns=2), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_other_formats_by_their_endings(tmp_path: Path, ending: str, start: bytes) -> None:
    draw(Picture([MAP]), tmp_path / f"a.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes().startswith(start)


def test_pictures_have_no_colors(tmp_path: Path) -> None:
    draw(Picture([CURVES, MAP, BARS]), tmp_path / "a.png")
    from matplotlib.image import imread

    pixels = imread(tmp_path / "a.png")[..., :3]
    assert (pixels.max(axis=2) - pixels.min(axis=2)).max() < 0.02
    assert pixels.min() < 0.1


def test_formulas_are_set_as_formulas_and_other_dollars_are_not(tmp_path: Path) -> None:
    found = [
        Curves(
            [Curve([1, 2], [1, 2], "")], "layer", r"$\beta_\mathrm{LN}$, encoder", is_formula=True
        ),
        Curves([Curve([1, 2], [1, 2], "")], "layer", "$y$"),
    ]
    draw(Picture(found), tmp_path / "a.svg")
    shown = texts(tmp_path / "a.svg")
    assert "$y$" in shown
    formula = next(one for one in shown if "β" in one)
    assert "beta" not in formula and "$" not in formula and "_" not in formula


def white(path: Path) -> NDArray[np.bool_]:
    """Where a picture has nothing, row by row."""
    from matplotlib.image import imread

    return np.asarray(imread(path)[..., :3].min(axis=2) > 0.999)


def test_a_small_panel_below_a_large_one_stays_small(tmp_path: Path) -> None:
    def square(size: int) -> HeatMap:
        names = [str(one) for one in range(size)]
        return HeatMap([[1.0] * size] * size, names, names, "a", "b", "title")

    draw(Picture([square(30), square(2)]), tmp_path / "a.png")
    blank = white(tmp_path / "a.png")
    height, width = blank.shape
    assert not blank[: height // 2, width // 2 :].all()
    assert blank[-height // 6 :, width // 2 :].all()
    assert not blank[-height // 6 :, : width // 2].all()


def test_labels_of_the_right_panels_keep_a_distance_from_the_left_panels(tmp_path: Path) -> None:
    panel = Curves([Curve([1, 2], [1.125, 1.126], "")], "layer", "the label of an axis")
    draw(Picture([panel, panel], columns=2), tmp_path / "a.png")
    columns = white(tmp_path / "a.png").all(axis=0)
    middle = columns[len(columns) // 3 : -len(columns) // 3]
    gaps = "".join("x" if one else " " for one in middle).split()
    assert max(map(len, gaps)) >= 0.3 * 150  # 0.3 inches, at 150 dots each
