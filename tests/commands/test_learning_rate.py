"""`analyze learning-rate`: a geometric series of rates, losses of a training; no file changes."""

import csv

import pytest

from commands.runs import files, losses
from nmtdeep.analysis.range_test import Trial, suggestion

RANGE_TEST = ("analyze", "learning-rate")


def test_half_the_rate_with_the_lowest_loss_is_suggested():
    # The lowest smoothed loss is at update 12; its mean age is 9 updates: 0.9 / (1 - 0.9).
    rows = [Trial(n, 2.0**n, 9.0, float(abs(n - 12))) for n in range(1, 15)]
    assert suggestion(rows) == 2**3 / 2
    assert suggestion(rows[:5]) == 1.0  # still falling at the end, and nothing is 9 updates ago


@pytest.mark.slow
def test_the_rates_grow_and_a_fresh_model_has_the_loss_of_a_training(nmtdeep, whole, tmp_path):
    choice = "training.optimizer.type=muon"  # the loss before the first update is any optimizer's
    before = files(nmtdeep.folder)
    table, picture = tmp_path / "lr.csv", tmp_path / "lr.svg"
    words = ("tiny.yaml", choice, "--data", "data", "--csv", table, "--plot", picture)
    done = nmtdeep(*RANGE_TEST, *words)
    assert done.code == 0, done.err
    with table.open(newline="") as file:
        rows = [{name: float(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    ratio = 1e5 ** (1 / 199)
    assert [row["lr"] for row in rows] == pytest.approx([1e-5 * ratio**n for n in range(len(rows))])
    # The first loss is that of the first update, whatever its rate.
    assert rows[0]["loss"] == pytest.approx(losses(whole)[1], rel=1e-6)
    mean = 0.0
    for number, row in enumerate(rows, start=1):  # Adam's mean, with its correction at the start
        mean = 0.9 * mean + 0.1 * row["loss"]
        assert row["smoothed"] == pytest.approx(mean / (1 - 0.9**number))
    lowest = min(range(len(rows)), key=lambda place: rows[place]["smoothed"])
    best = rows[max(0, lowest - 9)]["lr"] / 2
    assert f"suggestion: --lr {best:.1e}" in done.out
    assert f"suggestion: {float(f'{best:.1e}'):g}" in picture.read_text()
    assert files(nmtdeep.folder) == before
