"""The table of scores: each number once, the best run marked."""

from pathlib import Path

from nmtdeep.analysis.records import Records
from nmtdeep.config.recipe import Recipe
from nmtdeep.scoring import Score
from nmtdeep.scoring.stored import StoredScores
from nmtdeep.tools.report import tables
from nmtdeep.tools.report.history import RunHistory


def history(name: str, **scores: tuple[float, float]) -> RunHistory:
    """A run with BLEU and TER on the given sets."""
    stored = StoredScores(
        checkpoint="checkpoint_average",
        weights="",
        trained_to="checkpoint_9",
        averaged=[],
        scores={
            split: [
                Score("bleu", bleu, "nrefs:1|tok:13a"),
                Score("ter", ter, "nrefs:1|tok:tercom"),
            ]
            for split, (bleu, ter) in scores.items()
        },
    )
    return RunHistory(name, Path(name), Recipe(), Records([], {}), ["cpu"], 1, stored, [])


def test_each_set_and_metric_has_one_row_with_the_best_run_marked():
    runs = [history("thin", valid=(30.0, 50.0), test=(31.0, 49.0)),
            history("deep", valid=(33.0, 50.0), test=(30.5, 44.0))]  # fmt: skip
    again = {"thin": [Score("bleu", 31.001, "nrefs:1|tok:13a")]}
    table = tables.scores(runs, "test", again)
    assert list(table.headings) == ["set", "metric", "thin", "deep"]
    assert [[f"{cell.text}{'*' * cell.is_best}" for cell in row] for row in table.rows] == [
        ["valid", "BLEU ↑", "30.00", "33.00*"],
        ["valid", "TER ↓", "50.00*", "50.00*"],
        ["test", "BLEU ↑", "31.00*", "30.50"],
        ["test", "TER ↓", "49.00", "44.00*"],
    ]
    assert list(table.notes) == ["BLEU: nrefs:1|tok:13a", "TER: nrefs:1|tok:tercom"]


def test_scores_of_different_signatures_are_not_compared():
    again = {"thin": [Score("bleu", 20.0, "nrefs:2|tok:13a")]}
    table = tables.scores([history("thin"), history("deep", test=(10.0, 49.0))], "test", again)
    assert [cell.is_best for cell in table.rows[0]] == [False] * 4
    assert table.notes[0] == "BLEU (thin, test): nrefs:2|tok:13a"
    assert table.notes[1] == "BLEU (deep, test): nrefs:1|tok:13a"
    assert [cell.text for cell in table.rows[1]] == ["test", "TER ↓", "-", "49.00"]
