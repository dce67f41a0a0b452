"""Shallow to deep by the real commands: stages, interruptions, growth by hand, frozen layers."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from commands.running import Interrupt
from commands.runs import DOUBLE, contents, losses, records, train, trained, words

pytestmark = pytest.mark.usefixtures("data")
STAGES = (
    "model.encoder.depth=4",
    "model.encoder.combination={type: sparse_blocks, blocks: 2}",
    "model.decoder.depth=2",
    "model.positions={type: relative, clip: 3}",
    "training.stages=[{encoder: 1, decoder: 1, updates: 3}, "
    "{encoder: 2, decoder: 1, epochs: 1, max_tokens: 300}, {tokens_per_update: 500}]",
    "training.growth.strategy=copy_top_layer",
    "training.max_updates=18",
)
LOOP = "nmtdeep.training.loop"
LOSS = "nmtdeep.training.loss:smoothed_cross_entropy"


@pytest.fixture(scope="session")
def staged(nmtdeep, data):
    """A training in three stages that nothing interrupted; not to be changed."""
    done = trained(nmtdeep, "staged", *STAGES)
    assert "1+1, 2+1, 4+2 layers" in done.err
    assert "stage 2 of 3 | update 3 | 2+1 layers by copy_top_layer" in done.err
    return nmtdeep.folder / "staged"


def depth(checkpoint: Path) -> tuple[int, int]:
    """Layers of encoder and decoder that a checkpoint holds."""
    names = [name.split(".") for name in load_file(checkpoint / "model.safetensors")]
    layers = {(name[0], name[2]) for name in names if name[1] == "layers"}
    sides = [side for side, _ in layers]
    return sides.count("encoder"), sides.count("decoder")


def test_one_run_grows_from_stage_to_stage(nmtdeep, staged):
    assert depth(staged / "checkpoint_last") == (4, 2)
    lines = records(staged, "train")
    assert [record["update"] for record in lines] == list(range(1, 19))
    assert [record["stage"] for record in lines] == sorted(record["stage"] for record in lines)
    assert [record["stage"] for record in lines[:4]] == [1, 1, 1, 2]
    rates = [record["lr"] for record in lines]
    # The schedule has four updates of warm-up; update 4 is the first of stage 2.
    assert rates[:3] == pytest.approx([1e-7, 1.25e-2, 2.5e-2], rel=1e-4)
    assert rates[3] == pytest.approx(3.75e-2, rel=1e-4)
    # Stage 2 lasts to the end of the epoch after its first; stage 3 has fewer tokens an update.
    third = int(re.search(r"stage 3 of 3 \| update (\d+)", (staged / "train.log").read_text())[1])
    epochs = [record["epoch"] for record in lines]
    assert epochs[third - 1] + 1 == epochs[third]
    assert rates[third] == pytest.approx(5e-2)
    assert rates[third:] == sorted(rates[third:], reverse=True)
    sizes = [record["tokens_per_update"] for record in lines]
    assert min(sizes[3 : third - 1]) > max(sizes[third:])
    done = nmtdeep("translate", "-m", staged, "-i", "test.en", "--beam", 2)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 12


@pytest.mark.slow
def test_interrupted_in_every_stage_equals_uninterrupted(nmtdeep, staged, tmp_path):
    run, growth = tmp_path / "run", "nmtdeep.training.trainer:carry_over"
    for interrupt in (
        Interrupt(LOSS, 2),
        Interrupt(growth, 1),
        Interrupt(growth, 2),  # after the first in the same process
        Interrupt(growth, 1),  # the second alone
        Interrupt(f"{LOOP}:Recorder.updated", 3, "term"),
    ):
        ended = train(nmtdeep, run, *STAGES, interrupt=interrupt)
        assert ended.code in (-9, 143), (interrupt, ended.err)
    trained(nmtdeep, run, *STAGES)
    assert contents(run) == contents(staged)


@pytest.mark.slow
def test_two_processes_grow_together_by_muon_and_resume(nmtdeep, data, tmp_path):
    choice = (*STAGES, *DOUBLE, "training.optimizer.type=muon")
    single, run = tmp_path / "one", tmp_path / "two"
    trained(nmtdeep, single, *choice)
    two, killed = (*choice, "--processes", 2), Interrupt(f"{LOOP}:Recorder.updated", 5)
    assert train(nmtdeep, run, *two, interrupt=killed).code
    trained(nmtdeep, run, *two)
    assert losses(run) == pytest.approx(losses(single), rel=2e-5)
    assert depth(run / "checkpoint_last") == (4, 2)


def grow(nmtdeep, source, out, *options):
    return nmtdeep("grow", source, "--out", out, *options)


def test_a_grown_run_translates_and_trains_on(nmtdeep, whole, tmp_path):
    out = tmp_path / "grown"
    done = grow(nmtdeep, whole / "checkpoint_last", out, "--layers", 4)
    assert done.code == 0, done.err
    assert done.out.splitlines()[1:3] == [
        "encoder: 4 layers from 1 2 1 2",
        "decoder: 1 layer from 1",
    ]
    assert "grown from whole/checkpoint_11" in done.out
    assert nmtdeep("translate", "-m", out, "-i", "test.en").code == 0
    state = json.loads((out / "checkpoint_11" / "state.json").read_text())
    assert (state["update"], state["schedule_offset"], state["encoder"]) == (11, 7, [0, 1, 0, 1])
    config = str(out / "config.yaml")
    trained(nmtdeep, out, "training.max_updates=15", recipe=config)
    lines = records(out, "train")
    assert [record["update"] for record in lines] == [12, 13, 14, 15]
    # Warm-up is over, so the rate goes back to its peak and falls from there.
    assert lines[0]["lr"] == pytest.approx(5e-2)
    assert lines[3]["lr"] == pytest.approx(5e-2 * (4 / 7) ** 0.5)
    assert depth(out / "checkpoint_last") == (4, 1)


def test_a_finished_linear_training_that_grows_says_how_to_train_on(nmtdeep, data, tmp_path):
    schedule = "training.schedule={type: linear, lr: 0.01, warmup_updates: 2}"
    shallow, deep = tmp_path / "shallow", tmp_path / "deep"
    done = nmtdeep(*words(str(shallow), schedule, "--max-updates", 5)[:-1])
    assert done.code == 0, done.err
    done = grow(nmtdeep, shallow / "checkpoint_5", deep, "--layers", 4)
    assert done.code == 0, done.err
    command = done.out.splitlines()[-1].partition("nmtdeep ")[2]
    assert command == f"train --data DIR --out {deep} --max-updates 10"
    typed = command.replace("DIR", str(data)).split()
    done = nmtdeep(*typed, "--device", "cpu", "--threads", 1, "--no-final-scores")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (deep / "train.jsonl").read_text().splitlines()]
    lines = [record for record in lines if record["kind"] == "train"]
    assert [record["update"] for record in lines] == [6, 7, 8, 9, 10]
    # Tokens and seconds are those of the grown run alone.
    assert lines[-1]["target_tokens"] == round(sum(record["tokens_per_update"] for record in lines))
    assert lines[-1]["seconds"] >= sum(1 / record["updates_per_second"] for record in lines)
    # Two updates count as done, so the peak is over; the rest falls to zero after update 10.
    assert [record["lr"] for record in lines] == pytest.approx(
        [0.01 * share / 6 for share in (5, 4, 3, 2, 1)]
    )


def test_frozen_layers_keep_their_weights(nmtdeep, whole, tmp_path):
    run = tmp_path / "run"
    done = grow(nmtdeep, whole, run, "--layers", 3, "--freeze-copied", "--no-restart-lr")
    assert done.code == 0, done.err
    (start,) = run.glob("checkpoint_[0-9]*")
    before = load_file(start / "model.safetensors")
    trained(nmtdeep, run, "training.max_updates=13", recipe=str(run / "config.yaml"))
    after = load_file(run / "checkpoint_last" / "model.safetensors")
    kept = {name for name in before if torch.equal(before[name], after[name])}
    old = {name for name in before if name.startswith(("encoder.layers.0", "encoder.layers.1"))}
    assert old <= kept
    assert not any("layers.2" in name and "weight" in name for name in kept)


def test_impossible_growth_is_refused(nmtdeep, whole, tmp_path):
    for options in (("--layers", 2), ("--layers", 1), ("--layers", 3, "--strategy", "stack-all")):
        assert grow(nmtdeep, whole, tmp_path / "out", *options).code == 2
        assert not (tmp_path / "out" / "config.yaml").exists()
    assert grow(nmtdeep, whole, whole, "--layers", 5).code == 2  # replaces nothing
