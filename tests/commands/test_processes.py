"""Two processes resume as one does, and leave after signals."""

import time

import pytest

from commands.running import Interrupt, Later
from commands.runs import DOUBLE, contents, train, trained
from nmtdeep.training.launch import SECONDS_TO_SAVE

pytestmark = pytest.mark.usefixtures("data")
STEP = "nmtdeep.training.step:Step.apply"
VALIDATION = "nmtdeep.training.validation:score_texts"


@pytest.mark.slow
def test_two_processes_resume_bit_for_bit(nmtdeep, double, tmp_path):
    choice, run = (*DOUBLE, "--processes", 2), tmp_path / "run"
    for interrupt, code, message in (
        (Interrupt(STEP, 4, "kill", rank=1), 2, "rank 1 of 2: was killed by SIGKILL"),
        (Interrupt(STEP, 2, "launcher", rank=1), 143, "stopped by SIGTERM, saved at update "),
    ):
        began = time.monotonic()
        ended = train(nmtdeep, run, *choice, interrupt=interrupt)
        assert (ended.code, "Traceback" in ended.err) == (code, False), ended.err
        assert message in ended.err
    assert time.monotonic() - began < SECONDS_TO_SAVE  # then the launcher would have killed them
    trained(nmtdeep, run, *choice)
    assert contents(run) == contents(double[0])


@pytest.mark.slow
def test_ranks_leave_after_a_signal_in_a_validation(nmtdeep, tmp_path):
    choice = ("--processes", 2, "--max-updates", 2, "--max-tokens", 200)
    interrupt = Interrupt(VALIDATION, 1, "launcher")
    ended = train(nmtdeep, tmp_path / "run", *choice, interrupt=interrupt)
    assert (ended.code, "Traceback" in ended.err) == (143, False), ended.err
    assert "done after 2 updates" in ended.err
    assert (tmp_path / "run" / "checkpoint_last" / "state.json").is_file()


@pytest.mark.slow
def test_a_signal_to_a_starting_rank_waits_for_its_handler(nmtdeep, tmp_path):
    choice = ("--processes", 2, "--max-tokens", 200)
    ended = train(nmtdeep, tmp_path / "run", *choice, interrupt=Later(0, "int", child=True))
    assert (ended.code, "Traceback" in ended.err) == (130, False), ended.err
    assert "stopped by SIGINT, saved at update 1" in ended.err


@pytest.mark.slow
def test_a_signal_while_ranks_are_started_ends_those_that_were(nmtdeep, tmp_path):
    between = Interrupt("multiprocessing.process:BaseProcess.start", 2, "term")
    done = train(nmtdeep, tmp_path / "run", "--processes", 2, interrupt=between)
    assert done.code == 143
    assert "Traceback" not in done.err
