"""Translations of a test set: comparison with the first run, samples."""

import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from nmtdeep.tools.report import tables
from nmtdeep.tools.report.held_out import HeldOut

REFERENCES = [f"the {n} dog runs over field {n * 7} in the rain today" for n in range(60)]
WORSE = [
    line.replace("runs over", "goes to") if number % 2 else line
    for number, line in enumerate(REFERENCES)
]


@pytest.fixture
def held_out():
    systems = {"worse": WORSE, "same": WORSE, "better": REFERENCES}
    return HeldOut("test", REFERENCES, REFERENCES, systems, ["worse: beam 4"])


def test_runs_are_compared_with_the_first_one(held_out):
    table = tables.comparison(held_out.comparisons())
    rows = {(row[0].text, row[1].text): [cell.text for cell in row] for row in table.rows}
    bleu = corpus_bleu(WORSE, [REFERENCES]).score
    assert rows["worse", "BLEU ↑"][3:] == ["baseline", "-"]
    assert rows["same", "BLEU ↑"][3:] == ["+0.00", "1.0000"]
    assert rows["better", "BLEU ↑"][3] == f"{100 - bleu:+.2f}"
    assert float(rows["better", "BLEU ↑"][4]) < 0.01
    assert float(rows["better", "TER ↓"][3]) < 0
    assert [note.split(":")[0] for note in table.notes] == ["BLEU", "chrF2", "TER"]


def test_a_single_run_is_scored_but_not_compared():
    alone = HeldOut("test", REFERENCES, REFERENCES, {"worse": WORSE}, [])
    assert alone.comparisons() == []
    (scores,) = alone.scores().values()
    assert [score.metric for score in scores] == ["bleu", "chrf", "ter"]
    assert scores[1].value == pytest.approx(corpus_chrf(WORSE, [REFERENCES]).score)


def test_samples_are_at_equal_distances(held_out):
    assert [line.number for line in held_out.samples(4)] == [1, 16, 31, 46]
    assert [line.number for line in held_out.samples(1000)] == list(range(1, 61))
    name, pieces = held_out.samples(60)[1].translations[0]
    assert (name, [piece.text for piece in pieces if piece.kind == "other"]) == (
        "worse",
        ["goes to"],
    )
