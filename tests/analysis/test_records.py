"""Curves of trainings and scores by length: hand-written records, sacreBLEU."""

import json

import pytest
from matplotlib.figure import Figure
from sacrebleu import corpus_bleu

from nmtdeep.analysis import lengths
from nmtdeep.analysis.records import Point, measure, read_records
from nmtdeep.scoring.texts import NamedText


def train(update: int, tokens: int, seconds: float, nll: float | None) -> str:
    record = {"kind": "train", "update": update, "target_tokens": tokens, "seconds": seconds}
    return json.dumps(record | {"nll": nll})


@pytest.fixture
def run(tmp_path):
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


def test_a_validation_is_placed_between_the_log_lines_around_it(run):
    assert read_records("r", run) == [
        Point("r", "nll", 10, 1_000, 0.01, 5.0),
        Point("r", "valid_nll", 15, 2_000, 0.02, 4.5),
        Point("r", "nll", 20, 3_000, 0.03, 4.0),
    ]


@pytest.mark.parametrize(
    ("over", "places"),
    [("tokens", [1_000, 3_000]), ("hours", [0.01, 0.03])],
)
def test_the_x_axis_counts_updates_tokens_or_hours(run, over, places):
    figure = Figure()
    measure({"r": run}, ["nll", "valid_bleu"], over).draw(figure)
    (axes,) = figure.axes  # BLEU was not measured
    (curve,) = axes.lines
    assert curve.get_xdata() == pytest.approx(places)
    assert list(curve.get_ydata()) == [5.0, 4.0]


def validation(bleu: float, tokenize: str, beam: int) -> str:
    signature = f"nrefs:1|tok:{tokenize}|version:2"
    record = {"kind": "validation", "update": 10, "valid_nll": 4.5, "valid_bleu": bleu}
    return json.dumps(record | {"signature": signature, "beam": beam})


@pytest.mark.parametrize(
    ("other", "panels"),
    [
        (("13a", 1), {"validation BLEU": 2}),
        (("intl", 1), {"validation BLEU (tok:13a)": 1, "validation BLEU (tok:intl)": 1}),
    ],
)
def test_scores_of_different_signatures_are_apart(tmp_path, other, panels):
    runs = {"a": ("13a", 1), "b": other}
    for name, settings in runs.items():
        (tmp_path / name).mkdir()
        lines = [train(10, 1_000, 36, 5.0), validation(20.0, *settings)]
        (tmp_path / name / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    figure = Figure()
    measurement = measure({name: tmp_path / name for name in runs}, ["valid_bleu"])
    measurement.draw(figure)
    drawn = {
        axes.get_ylabel(): sum(len(line.get_xdata()) for line in axes.lines) for axes in figure.axes
    }
    assert drawn == panels
    assert measurement.summary is not None
    cells = [row["BLEU"] for row in measurement.summary]
    assert (cells[0] == cells[1] == "20.00 at 10") == (len(panels) == 1)
    assert {row.figure for row in measurement.rows} == {"nll", "valid_nll", "valid_bleu"}


SOURCE = ["a short line", "one two three four five six seven eight nine ten eleven", "short again"]
REFERENCE = ["the cat sat on the mat today", "it was raining all day long in town", "we went home"]
FIRST = ["the cat sat on a mat today", "it was raining all day long in towns", "they went home"]


def test_each_bucket_is_a_corpus_of_its_own():
    systems = {"one": FIRST, "two": REFERENCE}
    measurement = lengths.measure(
        NamedText("s", SOURCE), NamedText("r", REFERENCE), systems, "bleu"
    )
    short = corpus_bleu([FIRST[0], FIRST[2]], [[REFERENCE[0], REFERENCE[2]]], force=True).score
    long = corpus_bleu([FIRST[1]], [[REFERENCE[1]]], force=True).score
    assert [(row.system, row.words, row.sentences) for row in measurement.rows] == [
        ("one", "1-10", 2), ("one", "11-20", 1), ("two", "1-10", 2), ("two", "11-20", 1),
    ]  # fmt: skip
    assert [row.score for row in measurement.rows] == pytest.approx([short, long, 100, 100])
    assert "tok:13a" in measurement.signature


def test_the_boundaries_of_buckets():
    lines = NamedText("s", [" ".join(["w"] * words) for words in (0, 1, 10, 11, 20, 21, 95)])
    rows = lengths.measure(lines, lines, {"s": lines.lines}, "bleu-tok").rows
    assert [(row.words, row.sentences) for row in rows] == [
        ("0", 1), ("1-10", 2), ("11-20", 2), ("21-30", 1), ("91-100", 1),
    ]  # fmt: skip
