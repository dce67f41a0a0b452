"""Records of a training: each update is in one of them, however it is interrupted."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from nmtdeep.config.load import read_config
from nmtdeep.tools.report import history
from nmtdeep.training.final_scores import finish
from nmtdeep.training.state import Progress
from training.tiny import records, trained

# Intervals without a common factor: records, validations and checkpoints come one by one.
SETTINGS: dict[str, Any] = {
    "max_epochs": 3,
    "schedule": {"type": "linear", "lr": 0.01, "warmup_updates": 2},
    "validation": {"every": 5, "bleu": False, "best_by": "loss"},
    "checkpoints": {"every": 4, "keep_last": 50, "average_last": 0},
    "log_every": 7,
    "batches": {"tokens_per_update": 300, "group_tokens": 150},
}


class Alarm:
    """A clock of 0.1 s a look, which sends SIGTERM to this process at one look."""

    def __init__(self, look=0):
        self.look, self.looks = look, 0

    def __call__(self):
        self.looks += 1
        if self.looks == self.look:
            signal.raise_signal(signal.SIGTERM)
        return self.looks / 10


def train_to(run, tiny_run, code=0, look=0, **settings):
    return trained(tiny_run, run, code=code, clock=Alarm(look), **SETTINGS | settings)


@pytest.fixture(scope="module")
def whole(tiny_run, tmp_path_factory):
    """A run with the usual settings; not to be changed."""
    path = train_to(tmp_path_factory.mktemp("whole") / "run", tiny_run)
    check(path)
    epoch = int(tiny_run.data.corpus("train").target.lengths.sum())
    assert sum(row["tokens"] for row in records(path)) == 3 * epoch
    return path


@pytest.fixture(scope="module")
def each(tiny_run, tmp_path_factory):
    """A run with a record of each update."""
    return records(train_to(tmp_path_factory.mktemp("each") / "run", tiny_run, log_every=1))


@pytest.fixture
def run(tiny_run, whole, tmp_path):
    def run(name, **how):
        if not how and not (tmp_path / name).exists():
            return Path(shutil.copytree(whole, tmp_path / name, symlinks=True))
        return train_to(tmp_path / name, tiny_run, **how)

    return run


def check(run):
    """Every update and token is in one record, and the last ones are in the last."""
    progress, rows = Progress.of(run / "checkpoint_last"), records(run)
    ends = [row["update"] for row in rows]
    assert [row["updates"] for row in rows] == [b - a for a, b in zip([0, *ends], ends)]  # noqa: B905
    assert sum(row["tokens"] for row in rows) == progress.target_tokens
    assert ends[-1] == progress.update
    for row in records(run, "validation"):
        [at] = [each for each in rows if each["update"] == row["update"]]
        assert row["target_tokens"] == at["target_tokens"]
        assert row["hours"] * 3600 == pytest.approx(at["seconds"])
    shown = history.read("run", run)
    assert shown.last("update") == progress.update
    assert shown.last("tokens") == progress.target_tokens
    assert shown.last("hours") == pytest.approx(progress.seconds / 3600)


def test_means_are_those_of_the_updates_of_a_record(whole, each):
    by_update = {row["update"]: row for row in each}
    for row in records(whole):
        updates = [by_update[row["update"] - back] for back in range(row["updates"])]
        tokens = [one["tokens"] for one in updates]
        nll = sum(one["nll"] * size for one, size in zip(updates, tokens, strict=True))
        assert row["nll"] == pytest.approx(nll / sum(tokens), rel=1e-12)
        norms = [one["gradient_norm"] for one in updates]
        assert row["gradient_norm"] == pytest.approx(sum(norms) / len(norms), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("look", [20, 34])
def test_a_training_that_was_stopped_and_resumed(run, look):
    stopped = run("run", code=signal.SIGTERM, look=look)
    check(stopped)
    check(run("run"))


def test_a_training_that_was_killed_and_resumed(run):
    for path in run("run").glob("checkpoint_[0-9]*"):
        if int(path.name.rpartition("_")[2]) > 5:
            shutil.rmtree(path)
    check(run("run"))


def test_a_training_that_ended_by_the_clock(run):
    ended = run("run", max_minutes=0.05)
    assert 3 < Progress.of(ended / "checkpoint_last").update < 25
    check(ended)


def test_a_training_that_grew(run):
    grown = run("run", stages=[{"encoder": 1, "updates": 6}, {"encoder": 2}])
    assert [row["stage"] for row in records(grown) if row["update"] in (6, 8)] == [1, 2]
    check(grown)


def test_pauses_are_not_in_the_speed(each):
    """By the clock of 0.1 s a look an update takes as long whether or not a pause is near."""
    assert len({round(row["updates_per_second"], 3) for row in each}) <= 2


def test_a_run_of_an_older_version_is_read(run):
    """Its records lack `updates`, `tokens`, and the hours of validations."""
    path = run("run")
    before = history.read("run", path).records
    new = ("updates", "tokens", "hours")
    rows = []
    for kind, lacks in (("train", new), ("validation", (*new, "target_tokens"))):
        rows += [{key: row[key] for key in row if key not in lacks} for row in records(path, kind)]
    rows.sort(key=lambda row: row["update"])
    (path / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    assert history.read("run", path).records == before


def test_the_average_is_of_planned_checkpoints_only(run, tiny_run, capsys):
    """Each update is better than the one before and saved as the best so far."""
    settings = {
        "max_updates": 12, "max_epochs": None, "validation": SETTINGS["validation"] | {"every": 1},
        "checkpoints": {"every": 4, "keep_last": 3, "keep_best": 2, "average_last": 3},
    }  # fmt: skip
    path = run("run", **settings)
    scores = [row["valid_loss"] for row in records(path, "validation")]
    assert scores == sorted(scores, reverse=True)
    kept = sorted(int(path.name[11:]) for path in path.glob("checkpoint_[0-9]*"))
    assert kept == [4, 8, 11, 12]  # the planned ones, and the two best
    how = {"device": "cpu", "final_scores": False}
    finish(read_config(path), data=tiny_run.data.path, run=path, **how)
    assert "the mean of checkpoint_4, checkpoint_8, checkpoint_12" in capsys.readouterr().out
