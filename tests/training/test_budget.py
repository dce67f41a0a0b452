"""The number of updates that fit into a time, by a clock that the test turns."""

import os
import shutil
from types import SimpleNamespace

import pytest
from commands.runs import contents

from nmtdeep.config.model import Model
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Training
from nmtdeep.training.budget import Pace, continued
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.stage_control import linear_not_finished, low_peak, nothing_to_do, stop_reason
from nmtdeep.training.state import FittedUpdates, Progress
from training.tiny import records, trained

AUTO = {"max_updates": "auto", "max_minutes": 10.0}
LINEAR = {"type": "linear", "lr": 6.0, "warmup_updates": 100}


class Ticking:
    """A clock by which so many seconds pass between two looks at it; in rank 1 three times more."""

    def __init__(self, seconds):
        self.seconds, self.now = seconds, 0.0

    def __call__(self):
        self.now += self.seconds * (1 + 2 * int(os.environ.get("RANK", "0")))
        return self.now


def timed(training, update, **others):
    """The plan after 50 updates of this many seconds; the first ten take 3 s more.

    Each update has 100 target tokens, the validation set 200, an epoch 1,000; `others` are parts
    that were timed.
    """
    clock = SimpleNamespace(now=1000.0)
    pace = Pace(200, 1000, lambda: clock.now)
    for number in range(1, 51):
        assert pace.plan(training, Progress(update=number - 1)) is None
        clock.now += update + 3 * (number <= 10)
        pace.lap("update", 100)
    for part, seconds in others.items():
        clock.now += seconds
        pace.lap(part)
    done = Progress(update=50, seconds=clock.now - 1000)
    plan = pace.plan(training, done)
    assert pace.plan(training, Progress(update=50, plan=plan)) is None
    return plan


def simulated(seconds, update, validation, checkpoint):
    """The last update of a training from update 50 on: every 20 a validation, every 8 a save."""
    each = update + (validation + checkpoint) / 20 + checkpoint / 8
    return 50 + int((seconds - validation - checkpoint) / each)  # one of both at its end


@pytest.mark.parametrize("bleu", [True, False])
def test_the_number_is_what_the_clock_says(bleu):
    validation = {"every": 20, "bleu": bleu, "best_by": "loss"}
    training = Training(**AUTO, validation=validation, checkpoints={"every": 8})
    # 50 updates of 0.5 s and 30 s more are over; a twentieth of the rest is kept.
    left = 0.95 * (600 - 55)
    translated = 0.5 * 2 * 3 if bleu else 0.5 * 2 / 3  # as long as 200 tokens, times 3 or a third
    expected = simulated(left, 0.5, translated, 0)
    assert timed(training, 0.5) == FittedUpdates(10.0, expected)


def test_validations_and_checkpoints_that_were_timed_count():
    training = Training(**AUTO, validation={"every": 20}, checkpoints={"every": 8})
    expected = simulated(0.95 * (600 - 55 - 9), 0.5, 7, 2)
    assert timed(training, 0.5, validation=7, checkpoint=2) == FittedUpdates(10.0, expected)


def test_a_number_in_the_recipe_stays():
    assert timed(Training(max_updates=7000, max_minutes=10), 0.5) is None
    progress = Progress(update=60, seconds=60)
    assert continued(Training(max_updates=7000, max_minutes=10), progress) == progress


def test_other_minutes_are_planned_by_the_speed_so_far():
    training = Training(**AUTO | {"max_minutes": 20})
    before = Progress(update=400, seconds=600, plan=FittedUpdates(10, 400))
    assert stop_reason(Recipe(training=Training(**AUTO)), before)
    # 1.5 s each; 600 s remain, of which a twentieth is kept.
    after = continued(training, before)
    assert after.plan == FittedUpdates(20, 400 + 380)
    assert not stop_reason(Recipe(training=training), after)
    assert continued(training, after) == after
    early = Progress(update=49, seconds=49)
    assert continued(training, early) == early


@pytest.mark.parametrize(
    ("last", "rates"),
    [
        # Not fixed: the peak after the warm-up.
        (None, {50: 3.0, 100: 6.0, 101: 6.0, 5000: 6.0}),
        (699, {50: 3.0, 100: 6.0, 400: 3.0, 699: 0.01, 700: 0.0}),
        # Half of 80 updates go up to 40 hundredths of the peak, half of them down.
        (80, {40: 2.4, 41: 2.4 * 40 / 41, 80: 2.4 / 41, 81: 0.0}),
    ],
)
def test_the_schedule_ends_at_zero_after_the_fixed_number(last, rates):
    training = Training(**AUTO, schedule=LINEAR)
    recipe = Recipe(model=Model(width=16), training=training)
    assert {u: learning_rate(recipe, u, last=last) for u in rates} == pytest.approx(rates)
    shifted = {u: learning_rate(recipe, u + 7, 7, last=last and last + 7) for u in rates}
    assert shifted == pytest.approx(rates)


def test_a_machine_that_becomes_slower_is_reported_with_the_time_that_is_needed():
    recipe = Recipe(training=Training(**AUTO, schedule=LINEAR))
    plan = FittedUpdates(10, 700)
    assert not linear_not_finished(recipe, Progress(update=700, seconds=599, plan=plan))
    late = Progress(update=400, seconds=600, plan=plan)
    assert stop_reason(recipe, late)
    warning = linear_not_finished(recipe, late)
    assert "at 50 %" in warning and "--minutes 18 " in warning  # 17.5


def test_a_linear_schedule_that_ends_too_early_is_reported():
    schedule = {"type": "linear", "lr": 0.01, "warmup_updates": 2}
    recipe = Recipe(training=Training(max_updates=99, schedule=schedule))
    # The rate of the last update, as a share of the peak: 1 - (t - W) / (N + 1 - W).
    warning = linear_not_finished(recipe, Progress(update=30))
    assert f"still at {100 * (1 - 28 / 98):.0f} % of its peak" in warning
    assert "does better with --max-updates 30" in warning
    assert not linear_not_finished(recipe, Progress(update=99))


def test_a_peak_that_is_not_reached_is_reported_and_is_the_measure_of_the_end():
    """A warm-up of 300 to 6e-3 turns at update 110 of 220: at 6e-3 110 / 300 = 2.2e-3."""
    schedule = {"type": "linear", "lr": 6e-3, "warmup_updates": 300}
    recipe = Recipe(training=Training(**AUTO | {"max_minutes": 4}, schedule=schedule))
    late = Progress(update=196, seconds=240, plan=FittedUpdates(4, 220))
    assert "2.2e-03 instead of 6.0e-03" in low_peak(recipe, late)
    # 2.2e-3 (1 - 86 / 111) = 4.95e-4
    assert "at 23 %" in linear_not_finished(recipe, late)
    assert "--minutes 5 " in nothing_to_do(recipe, late)
    assert not low_peak(recipe, Progress(update=50, plan=FittedUpdates(4, 600)))
    assert not low_peak(recipe, Progress(update=40))  # the length is not known yet
    for updates, said in ((150, "3.0e-03 instead of 6.0e-03"), (300, "")):
        fixed = Recipe(training=Training(max_updates=updates, schedule=schedule))
        assert said in low_peak(fixed, Progress()) and bool(low_peak(fixed, Progress())) == bool(
            said
        )


@pytest.fixture
def run(tiny_run, tmp_path):
    """Trains the tiny recipe for a number of minutes, by a clock of 0.1 s a look."""

    def run(name, processes=1, **settings):
        training = {
            "max_updates": "auto",
            "schedule": {"type": "linear", "lr": 0.01, "warmup_updates": 10},
            "validation": {"every": 40, "bleu": False, "best_by": "loss"},
            "checkpoints": {"every": 10, "keep_last": 50, "average_last": 2},
            "log_every": 1,
            "batches": {"tokens_per_update": 200, "group_tokens": 200},
            **settings,
        }
        how = {"processes": processes, "clock": Ticking(0.1)}
        return trained(tiny_run, tmp_path / name, **how, **training)

    return run


def drop_checkpoints_after(update, run):
    for path in run.glob("checkpoint_[0-9]*"):
        if int(path.name.rpartition("_")[2]) > update:
            shutil.rmtree(path)


def state(run):
    return Progress.of(run / "checkpoint_last")


@pytest.mark.slow
def test_a_training_ends_at_the_number_and_resumes_to_it(run, tmp_path):
    whole = run("whole", max_minutes=0.6)
    number = state(whole).plan.updates
    assert state(whole).plan.minutes == 0.6
    assert state(whole).update == number and 60 < number < 200
    rows = records(whole)
    assert [row["max_updates"] for row in rows] == [None] * 49 + [number] * (number - 49)
    # Warm-up, the peak while the number is unknown, then a line to zero one update later.
    line = [0.01 * (number + 1 - u) / (number + 1 - 10) for u in range(51, number + 1)]
    rise = [0.01 * min(1, u / 10) for u in range(1, 51)]
    assert [row["lr"] for row in rows] == pytest.approx([*rise, *line])
    text = (whole / "train.log").read_text()
    assert f"done after {number} updates: those that fit into 0.6 minutes" in text
    assert "warning" not in text
    for start in (50, 60):
        part = tmp_path / f"part-{start}"
        shutil.copytree(whole, part, symlinks=True)
        drop_checkpoints_after(start, part)
        assert run(part.name, max_minutes=0.6) == part
        assert contents(part) == contents(whole)


@pytest.mark.slow
def test_rank_0_decides_for_all(run):
    batches = {"tokens_per_update": 400, "group_tokens": 200}
    settings = {"max_minutes": 0.4, "batches": batches, "checkpoints": {"every": 100}}
    alone, both = (state(run(f"run-{count}", count, **settings)) for count in (1, 2))
    assert both.plan == alone.plan
    assert both.update == both.plan.updates > 50


@pytest.mark.slow
def test_a_run_stopped_before_the_number_is_fixed_decides_later(run):
    drop_checkpoints_after(40, run("run", max_minutes=0.6))
    later = run("run", max_minutes=1.2)
    fixed = [row["update"] for row in records(later) if row["max_updates"] is not None]
    assert min(fixed) == 90  # the last of 50 updates after it resumed
    assert state(later).update == state(later).plan.updates
