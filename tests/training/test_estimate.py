"""The length of a training before it is trained, and its hours by a clock that ticks."""

import re

import pytest

from nmtdeep.training.estimate import estimate
from nmtdeep.training.setup import TrainingJob
from nmtdeep.training.state import Progress
from training.tiny import recipe_of, trained

TICK = 0.5
QUIET = {"validation": {"every": 40, "bleu": False, "best_by": "loss"}}
SMALL = {"batches": {"tokens_per_update": 200, "group_tokens": 200}, **QUIET}
STAGES = [{"encoder": 1, "epochs": 1}, {"encoder": 2, "updates": 5}]


def estimated(tiny_run, **training):
    """The table's values by name, the last one of those that have several."""
    ticks = iter(range(10**6))
    recipe = recipe_of(tiny_run, **training)
    job = TrainingJob(recipe, tiny_run.data, device="cpu")
    text = estimate(job, clock=lambda: TICK * next(ticks))
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


@pytest.mark.parametrize(
    "length",
    [{"max_updates": 12}, {"max_updates": 500, "max_epochs": 2}, {"stages": STAGES}],
    ids=["updates", "epochs", "stages"],
)
def test_it_has_the_updates_of_the_training(tiny_run, tmp_path, length):
    training = {"max_updates": 500, **SMALL, **length, "checkpoints": {"every": 500}}
    run = trained(tiny_run, tmp_path / "run", **training)
    progress = Progress.of(run / "checkpoint_last")
    said = re.match(r"([\d,.]+), ([\d,.]+) epochs", estimated(tiny_run, **training)["updates"])
    updates, epochs = (float(value.replace(",", "")) for value in said.groups())
    assert updates == pytest.approx(progress.update, rel=0.05)
    whole = progress.position.next_in_epoch == 0
    assert epochs == pytest.approx(progress.epoch + 0.5 * (not whole), abs=0.1 if whole else 0.5)


def test_its_time_is_that_of_the_updates_and_of_the_end(tiny_run):
    table = estimated(tiny_run, max_updates=2000, **SMALL)
    # 50 updates; the first looks once at the clock, from the sixth on two looks lie between two
    # ends, but for the last. The first ten do not count.
    update = TICK * (39 * 2 + 1) / 40
    hours, minutes, seconds = map(int, re.match(r"(\d+):(\d+):(\d+) ", table["time"]).groups())
    expected = 2000 * update + 50 * TICK  # each of 50 validations is one look
    assert 3600 * hours + 60 * minutes + seconds == pytest.approx(expected, abs=2)
    assert "50 updates timed" in table["speed"]


def test_minutes_bound_it(tiny_run):
    table = estimated(tiny_run, max_updates=10**6, max_minutes=60, **SMALL)
    assert table["time"].startswith(("0:59:5", "1:00:00"))
