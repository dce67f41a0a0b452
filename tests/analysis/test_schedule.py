"""Learning rates with stages: the formula of each schedule, written out."""

import json
import math
from typing import Any

import pytest

from nmtdeep.analysis.schedule import learning_rates, measure
from nmtdeep.checkpoint import FORMAT
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.files import write_sums
from nmtdeep.training.state import FittedUpdates, Progress

PEAK, WARM = 2e-3, 8


def recipe(*stages: dict[str, int], **training: Any) -> Recipe:
    schedule = {"type": "inverse_square_root", "lr": PEAK, "warmup_updates": WARM}
    return Recipe.model_validate(
        {
            "model": {"encoder": {"depth": 6}},
            "training": {"max_updates": 40, "schedule": schedule, "stages": stages} | training,
        }
    )


def after(done: int) -> float:
    """fairseq's inverse_sqrt: the rate that belongs to so many updates done."""
    if done < WARM:
        return 1e-7 + done * (PEAK - 1e-7) / WARM
    return PEAK * math.sqrt(WARM / done)


STAGES = ({"encoder": 2, "updates": 5}, {"encoder": 4, "updates": 15}, {"encoder": 6})


def test_a_stage_begins_at_the_peak_or_still_on_its_way_there():
    """The counter goes back to min(updates, warm-up), as the release of Li et al. 2020 does."""
    rates = learning_rates("r", recipe(*STAGES))
    expected = [after(n) for n in range(20)]  # the second stage begins within the warm-up
    expected += [after(n) for n in range(WARM, WARM + 20)]
    assert [rate.lr for rate in rates] == pytest.approx(expected)
    rates_without = learning_rates("r", recipe(*STAGES, growth={"restart_lr": False}))
    assert [rate.lr for rate in rates_without] == pytest.approx([after(n) for n in range(40)])
    assert [(rate.stage, rate.encoder) for rate in rates] == [(1, 2)] * 5 + [(2, 4)] * 15 + [
        (3, 6)
    ] * 20


def test_epochs_need_their_length():
    staged = recipe({"encoder": 3, "epochs": 2}, {"encoder": 6}, max_epochs=3)
    with pytest.raises(UserError, match=r"stage 1 lasts 2 epochs.*--updates-per-epoch"):
        learning_rates("r", staged)
    rates = learning_rates("r", staged, 10)
    assert [rate.stage for rate in rates] == [1] * 20 + [2] * 10


def test_of_many_updates_the_edges_and_the_peak_are_there():
    staged = recipe({"encoder": 3, "updates": 33_333}, {"encoder": 6}, max_updates=99_999)
    rates = {rate.update: rate.lr for rate in learning_rates("r", staged)}
    assert {1, 9, 33_333, 33_334, 99_999} <= rates.keys()
    assert rates[9] == rates[33_334] == PEAK
    assert 1000 <= len(rates) < 1100


def test_a_run_that_chose_its_length_by_the_clock_has_its_rates(tmp_path):
    """It turns at half of 100 updates, and ends one update before zero."""
    schedule = {"type": "linear", "lr": PEAK, "warmup_updates": 80}
    planned = recipe(max_updates="auto", max_minutes=5, schedule=schedule)
    with pytest.raises(UserError, match="auto, which a run fixes after 50 updates"):
        measure({"run": planned}, runs={"run": tmp_path})
    folder = tmp_path / "checkpoint_60"
    folder.mkdir()
    state = {"format": FORMAT, **Progress(update=60, plan=FittedUpdates(5, 100)).to_json()}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    write_sums(folder, "state.json")
    rates = {row.update: row.lr for row in measure({"run": planned}, runs={"run": tmp_path}).rows}
    assert max(rates.values()) == rates[50] == pytest.approx(PEAK * 50 / 80)
    assert rates[25] == pytest.approx(PEAK * 25 / 80)
    assert rates[100] == pytest.approx(PEAK * 50 / 80 / 51)
    assert max(rates) == 100
