"""Curves of trainings: points of hand-written records, places in between, broken lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from nmtdeep.analysis.records import Point, measure, read_points
from nmtdeep.errors import UserError


def train(update: int, tokens: int, seconds: float, nll: float | None) -> str:
    record = {"kind": "train", "update": update, "target_tokens": tokens, "seconds": seconds}
    return json.dumps(record | {"nll": nll})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    lines = [
        train(10, 1_000, 36, 5.0),
        json.dumps({"kind": "validation", "update": 15, "valid_nll": 4.5, "seconds": 7}),
        train(20, 3_000, 108, 4.0),
        train(30, 4_000, 144, None),
        '{"kind": "train", "upd',
        "[" * 100_000,
        '{"kind": "train", "update": 1' + "0" * 400 + "}",
        "7",
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def test_a_validation_is_placed_between_the_log_lines_around_it(run: Path) -> None:
    assert read_points("r", run) == [
        Point("r", "nll", 10, 1_000, 0.01, 5.0),
        Point("r", "valid_nll", 15, 2_000, 0.02, 4.5),
        Point("r", "nll", 20, 3_000, 0.03, 4.0),
    ]


@pytest.mark.parametrize(
    ("over", "places"),
    [("updates", [10, 20]), ("tokens", [1_000, 3_000]), ("hours", [0.01, 0.03])],
)
def test_the_x_axis_counts_updates_tokens_or_hours(run: Path, over, places: list[float]) -> None:
    figure = Figure()
    measure({"r": run}, ["nll", "valid_bleu"], over).draw(figure)
    (axes,) = figure.axes  # BLEU was not measured
    (curve,) = axes.lines
    assert curve.get_xdata() == pytest.approx(places)
    assert list(curve.get_ydata()) == [5.0, 4.0]


def test_figures_that_no_run_recorded_are_an_error(run: Path) -> None:
    with pytest.raises(UserError, match="no run recorded valid_bleu or ppl: choose another"):
        measure({"r": run}, ["valid_bleu", "ppl"])


@pytest.mark.parametrize("content", [None, "", '{"kind": "validation", "update": 3}'])
def test_a_directory_without_records_is_an_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "train.jsonl").write_text(content)
    with pytest.raises(UserError, match=r"train\.jsonl.*pass the directory of a run"):
        read_points("r", tmp_path)
