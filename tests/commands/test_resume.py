"""Interrupted anywhere == uninterrupted, bitwise on a CPU."""

import fcntl
import json
import re
import shutil

import pytest

from commands.running import Interrupt
from commands.runs import contents, losses, records, train, trained

LOOP, STEP = "nmtdeep.training.loop", "nmtdeep.training.step"
LOSS = "nmtdeep.training.loss:smoothed_cross_entropy"
CHECKPOINT = "nmtdeep.checkpoint"
# Kills, one after the other in one run; each is resumed by the next.
KILLS = {
    "updates": {
        "before the first checkpoint": Interrupt(LOSS, 1),
        "in the middle of an update": Interrupt(LOSS, 12),
        "after the step, before the log": Interrupt(f"{LOOP}:Recorder.updated", 2),
        "in a validation": Interrupt("nmtdeep.training.validation:score_texts", 1),
    },
    "checkpoints": {
        "in the first checkpoint": Interrupt(f"{CHECKPOINT}:save_tensors", 2, "half"),
        "in the weights of a checkpoint": Interrupt(f"{CHECKPOINT}:save_tensors", 3, "half"),
        "before a checkpoint's rename": Interrupt("nmtdeep.files:sync", 2),
        "after a checkpoint's rename": Interrupt(f"{CHECKPOINT}:point", 1),
        "in the moments of a checkpoint": Interrupt(f"{CHECKPOINT}:save_tensors", 4, "half"),
        "between a validation and its checkpoint": Interrupt(f"{LOOP}:Trainer.tensors", 2),
    },
    "the last ones": {
        "between last and best": Interrupt(f"{CHECKPOINT}:point", 6),
        "in the deletion of a checkpoint": Interrupt(f"{CHECKPOINT}:remove", 1),
        "before the last deletion": Interrupt(f"{CHECKPOINT}:remove", 2),
        "in the averaging": Interrupt("nmtdeep.averaging:average"),
        "in the last scores": Interrupt("nmtdeep.training.final_scores:score_split", 2),
    },
}


@pytest.mark.parametrize(
    "places",
    [
        "checkpoints",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("updates", "the last ones")),
    ],
)
def test_killed_and_resumed_equals_the_uninterrupted_run(nmtdeep, whole, tmp_path, places):
    run = tmp_path / "run"
    for place, interrupt in KILLS[places].items():
        ended = train(nmtdeep, run, interrupt=interrupt)
        assert ended.code == -9, (place, ended.err)
    trained(nmtdeep, run)
    assert contents(run) == contents(whole)


@pytest.mark.slow
def test_killed_under_bpe_dropout_and_patience(nmtdeep, whole_dropout, tmp_path):
    end = max(losses(whole_dropout))
    assert 4 <= end < 100
    assert len({record["epoch"] for record in records(whole_dropout)}) > 1
    run, options = tmp_path / "run", {"recipe": "dropout.yaml", "data": "data-dropout"}
    for interrupt in (
        Interrupt("nmtdeep.data.segmentation:Segmenter.draw", 100),
        Interrupt(f"{LOOP}:Recorder.updated", 3),
        Interrupt("nmtdeep.training.validation:corpus_loss", 1),
    ):
        assert train(nmtdeep, run, interrupt=interrupt, **options).code == -9
    trained(nmtdeep, run, **options)
    assert contents(run) == contents(whole_dropout)


@pytest.mark.parametrize("update", [9, 11])
def test_a_signal_saves_first(nmtdeep, whole, tmp_path, update):
    run = tmp_path / "run"
    stopped = train(nmtdeep, run, interrupt=Interrupt(f"{STEP}:Step.apply", update, "term"))
    ends = (
        "done after 11 updates"
        if update == 11
        else f"stopped by SIGTERM, saved at update {update};"
    )
    assert ends in stopped.err and stopped.code == 143
    assert not (run / "scores.json").exists()
    assert (run / "checkpoint_last").resolve().name == f"checkpoint_{update}"
    trained(nmtdeep, run)
    assert contents(run) == contents(whole)


def test_nothing_to_do_changes_nothing(nmtdeep, whole, whole_dropout, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    before = {path: path.stat().st_mtime_ns for path in run.glob("checkpoint_*/*")}
    again = train(nmtdeep, run)
    assert again.code == 0
    assert "already at update 11 of 11: nothing to do" in again.err
    assert "scores of checkpoint_" in again.out
    assert {path: path.stat().st_mtime_ns for path in run.glob("checkpoint_*/*")} == before
    assert contents(run) == contents(whole)
    again = train(nmtdeep, whole_dropout, recipe="dropout.yaml", data="data-dropout")
    assert "of 100: nothing to do (no better validation in the last 4, best at update" in again.err


def test_a_second_training_is_refused(nmtdeep, whole, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = train(nmtdeep, run)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert f"error: {run}: another process" in refused.err


@pytest.mark.parametrize(
    "change",
    ["training.seed: 1 -> 2", "model.width: 16 -> 32", "training.optimizer.type: adam -> muon"],
)
def test_another_experiment_is_refused(nmtdeep, whole, change):
    before = contents(whole)
    refused = train(nmtdeep, whole, re.sub(r": .* -> ", "=", change))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert change in refused.err
    assert contents(whole) == before


@pytest.mark.slow
def test_more_updates_continue_the_training(nmtdeep, whole, tmp_path):
    longer = train(nmtdeep, tmp_path / "longer", "training.max_updates=14")
    assert longer.code == 0
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    assert nmtdeep("average-checkpoints", run, "--last", 2).code == 0
    killed = Interrupt(f"{STEP}:Step.apply", 1)
    more = train(nmtdeep, run, "training.max_updates=14", interrupt=killed)
    assert more.code == -9
    assert "training.max_updates: 11 -> 14" in more.err
    # Results of fewer updates are removed before the first new one.
    assert not (run / "scores.json").exists() and not (run / "checkpoint_average").exists()
    trained(nmtdeep, run, "training.max_updates=14")
    assert losses(run) == losses(tmp_path / "longer")
    last = "checkpoint_14/model.safetensors"
    assert (run / last).read_bytes() == (tmp_path / "longer" / last).read_bytes()
    assert json.loads((run / "scores.json").read_text())["trained_to"] == "checkpoint_14"


@pytest.mark.slow
def test_a_full_disk_while_saving(nmtdeep, whole, tmp_path):
    run = tmp_path / "run"
    full = Interrupt("nmtdeep.checkpoint:save", 2, "full")
    failed = train(nmtdeep, run, interrupt=full)
    assert failed.code == 2
    last = failed.err.splitlines()[-1]
    assert last.startswith(f"nmtdeep: error: {run}/checkpoint_3: ")
    assert "Traceback" not in failed.err
    kept = [path.name for path in run.glob("checkpoint_*") if not path.is_symlink()]
    assert kept == ["checkpoint_2"]
    assert nmtdeep("translate", "-m", run, "-q", stdin=b"Password\n").code == 0
    trained(nmtdeep, run)
    assert contents(run) == contents(whole)


@pytest.mark.slow
def test_bpe_dropout_may_change_and_updates_stay_the_same_sentences(
    nmtdeep, dropout_data, tmp_path
):
    counts = {}
    for dropout in (0.1, 0.5):
        run = tmp_path / str(dropout)
        more = ("training.max_updates=12", "training.validation.patience=0")
        stop = (*more, f"text.bpe.dropout={dropout}")
        trained(nmtdeep, run, *stop, recipe="dropout.yaml", data="data-dropout")
        assert not (run / "bpe_dropout").exists()
        rows = records(run, "train")
        epochs = [row["epoch"] for row in rows]
        counts[dropout] = (epochs, sum(row["tokens_per_update"] for row in rows))
    assert counts[0.5][0] == counts[0.1][0]
    assert counts[0.5][1] > counts[0.1][1]  # more pieces of the same sentences
