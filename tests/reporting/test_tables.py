"""Scores and cost on the page: each number once, the best marked, tokens and seconds of one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmtdeep.analysis.records import Point, Start, read_start
from nmtdeep.config import Recipe
from nmtdeep.reporting import tables
from nmtdeep.reporting.history import History
from nmtdeep.scoring import Score
from nmtdeep.training.finish import StoredScore, StoredScores

FRESH = Start()


def history(name: str, *, began: Start = FRESH, points: tuple[Point, ...] = (),
            **scores: tuple[float, float]) -> History:  # fmt: skip
    """A run with BLEU and TER of some sets."""
    stored = StoredScores(
        checkpoint="checkpoint_average",
        trained_to="checkpoint_9",
        averaged=[],
        scores={
            split: [
                StoredScore(metric="bleu", value=bleu, signature="nrefs:1|tok:13a"),
                StoredScore(metric="ter", value=ter, signature="nrefs:1|tok:tercom"),
            ]
            for split, (bleu, ter) in scores.items()
        },
    )
    return History(name, Path(name), Recipe(), points, began, ["cpu"], 1, stored, [])


def test_scores_stand_once_by_set_and_metric_and_the_best_run_is_marked() -> None:
    runs = [history("thin", valid=(30.0, 50.0), test=(31.0, 49.0)),
            history("deep", valid=(33.0, 50.0), test=(30.5, 44.0))]  # fmt: skip
    again = {"thin": [Score("bleu", 31.001, "nrefs:1|tok:13a")]}
    made = tables.scores(runs, "test", again)
    assert list(made.headings) == ["set", "metric", "thin", "deep"]
    assert [[f"{cell.text}{'*' * cell.is_best}" for cell in row] for row in made.rows] == [
        ["valid", "BLEU ↑", "30.00", "33.00*"],
        ["valid", "TER ↓", "50.00*", "50.00*"],
        ["test", "BLEU ↑", "31.00*", "30.50"],
        ["test", "TER ↓", "49.00", "44.00*"],
    ]
    assert list(made.notes) == ["BLEU: nrefs:1|tok:13a", "TER: nrefs:1|tok:tercom"]


def test_a_stored_score_that_is_not_that_of_the_model_any_more_is_a_note() -> None:
    again = {"thin": [Score("bleu", 20.0, "nrefs:1|tok:13a")]}
    made = tables.scores([history("thin", test=(31.0, 49.0))], "test", again)
    assert [cell.text for cell in made.rows[0]] == ["test", "BLEU ↑", "20.00"]
    assert not any(cell.is_best for row in made.rows for cell in row)  # there is one run
    assert made.notes[-1].startswith("thin, test: BLEU was 31.00 after training (checkpoint_")


def test_scores_of_different_signatures_are_not_compared() -> None:
    again = {"thin": [Score("bleu", 20.0, "nrefs:2|tok:13a")]}
    made = tables.scores([history("thin"), history("deep", test=(10.0, 49.0))], "test", again)
    assert [cell.is_best for cell in made.rows[0]] == [False] * 4
    assert made.notes[0] == "BLEU (thin, test): nrefs:2|tok:13a"
    assert made.notes[1] == "BLEU (deep, test): nrefs:1|tok:13a"
    assert [cell.text for cell in made.rows[1]] == ["test", "TER ↓", "-", "49.00"]


def test_tokens_and_seconds_of_a_grown_run_are_its_own(tmp_path: Path) -> None:
    # 100 updates of 1,000 tokens before; then 50 of 800 tokens in 40 seconds.
    records = [
        {"kind": "train", "update": 110, "target_tokens": 108_000, "tokens_per_update": 800.0},
        {"kind": "train", "update": 150, "target_tokens": 140_000, "tokens_per_update": 800.0},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    began = read_start(tmp_path, update=100)
    assert began == Start(100, 100_000)
    assert read_start(tmp_path, update=0) == Start(0, 0)
    points = tuple(
        Point("grown", "nll", one["update"], one["target_tokens"], hours, 2.0)  # type: ignore
        for one, hours in zip(records, (8 / 3600, 40 / 3600), strict=True)
    )
    (row,) = tables.cost([history("grown", began=began, points=points)]).rows
    assert [cell.text for cell in row[2:6]] == ["0:00:40", "40.0k", "1,000", "800"]
    assert row[4].value == pytest.approx(50 * 800 / 40)
