"""One process == two processes, and two processes resume as one does."""

from __future__ import annotations

import time

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from commands.running import Interrupt, Later
from commands.runs import SMOOTH, contents, losses, train
from nmtdeep.training.launch import SECONDS_TO_SAVE

pytestmark = pytest.mark.usefixtures("data")
STEP = "nmtdeep.training.step:Step.move"
VALIDATION = "nmtdeep.training.validation:score_texts"


@pytest.mark.parametrize("optimizer", [pytest.param("adam", marks=pytest.mark.slow), "muon"])
def test_one_process_is_two_processes(nmtdeep, tmp_path, optimizer):
    choice = (*SMOOTH, f"training.optimizer.type={optimizer}", "--max-tokens", 200)
    single, double = tmp_path / "one", tmp_path / "two"
    assert train(nmtdeep, single, *choice).code == 0
    finished = train(nmtdeep, double, *choice, "--processes", 2)
    assert finished.code == 0, finished.err
    assert "2 processes of 1 thread" in finished.err
    assert losses(single) == pytest.approx(losses(double), rel=2e-5)
    weights = [load_file(run / "checkpoint_last/model.safetensors") for run in (single, double)]
    for tensors in weights:
        # The bias of keys has gradient zero, and Adam makes steps of what rounding leaves of it.
        for name in [name for name in tensors if name.endswith(("qkv.bias", "key_value.bias"))]:
            del tensors[name]
    # Muon makes all directions of a gradient equally long, also those that are mostly rounding.
    assert_close(weights[0], weights[1], rtol=0, atol=1e-3 if optimizer == "muon" else 2e-4)


def test_two_processes_resume_bit_for_bit(nmtdeep, tmp_path):
    choice = ("training.optimizer=muon", "--max-tokens", 200, "--processes", 2)
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert train(nmtdeep, whole, *choice).code == 0
    killed = "of 2: was killed by SIGKILL: run the same command to resume from the last checkpoint"
    for interrupt, code, message in (
        (Interrupt(STEP, 4, "kill", rank=1), 2, f"rank 1 {killed}"),
        (Interrupt(VALIDATION, 1, "kill"), 2, f"rank 0 {killed}"),
        (Interrupt(STEP, 2, "term", rank=1), 143, "stopped by SIGTERM, saved at update "),
    ):
        ended = train(nmtdeep, run, *choice, interrupt=interrupt)
        assert ended.code == code, ended.err
        assert message in ended.err and "Traceback" not in ended.err
    resumed = train(nmtdeep, run, *choice)
    assert resumed.code == 0, resumed.err
    assert contents(run) == contents(whole)


@pytest.mark.parametrize(
    ("place", "message"),
    [(STEP, "stopped by SIGTERM, saved at"), (VALIDATION, "done after 2 updates")],
)
def test_ranks_leave_after_a_signal_to_their_launcher(nmtdeep, tmp_path, place, message):
    choice = ("--processes", 2, "--max-updates", 2, "--max-tokens", 200)
    began = time.monotonic()
    ended = train(nmtdeep, tmp_path / "run", *choice, interrupt=Interrupt(place, 1, "launcher"))
    assert (ended.code, "Traceback" in ended.err) == (143, False), ended.err
    assert message in ended.err
    assert time.monotonic() - began < SECONDS_TO_SAVE  # then the launcher would have killed them
    resumed = train(nmtdeep, tmp_path / "run", *choice)
    assert resumed.code == 0 and "scores of" in resumed.out, resumed.err


def test_a_signal_to_a_starting_rank_waits_for_its_handler(nmtdeep, tmp_path):
    choice = ("--processes", 2, "--max-tokens", 200)
    ended = train(nmtdeep, tmp_path / "run", *choice, interrupt=Later(0, "int", child=True))
    assert (ended.code, "Traceback" in ended.err) == (130, False), ended.err
    assert "stopped by SIGINT, saved at update 1" in ended.err


def test_idle_processes_are_refused(nmtdeep, tmp_path):
    refused = train(nmtdeep, tmp_path / "run", "--processes", 3)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "leave some of 3 processes idle: pass --max-tokens 267" in refused.err


def test_a_signal_while_ranks_are_started_ends_those_that_were(nmtdeep, tmp_path):
    between = Interrupt("multiprocessing.process:BaseProcess.start", 2, "term")
    done = train(nmtdeep, tmp_path / "run", "--processes", 2, interrupt=between)
    assert done.code == 143
    assert "Traceback" not in done.err
