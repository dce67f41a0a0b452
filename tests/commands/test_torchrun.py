"""Ranks that torchrun starts: the same training, restarted and resumed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands.runs import DOUBLE, contents, trained, words

pytestmark = [pytest.mark.usefixtures("data"), pytest.mark.slow]


# torchrun loses rank 1 in update 5, starts both again, and gets SIGTERM in the second update.
INTERRUPTED = """
import os, signal
from commands.running import Interrupt
from nmtdeep.cli.main import run
from nmtdeep.training.step import Step

rank, start = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
if (rank, start) == ("1", "0"):
    Interrupt("nmtdeep.training.step:Step.apply", 5, "kill").install()
if (rank, start) == ("0", "1"):
    update, calls = Step.apply, []

    def stopped(*arguments):
        calls.append(None)
        if len(calls) == 2:
            os.kill(os.getppid(), signal.SIGTERM)
        return update(*arguments)

    Step.apply = stopped
run()
"""


def test_torchrun_restarts_stops_and_equals_processes(nmtdeep, double, tmp_path):
    script, run = tmp_path / "interrupted.py", tmp_path / "run"
    script.write_text(INTERRUPTED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    arguments = [str(word) for word in words(str(run), *DOUBLE, "--overwrite")]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node=2", "--max-restarts=1", script, *arguments],
        check=False,
        cwd=nmtdeep.folder,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
        },
    )
    assert done.returncode != 0
    assert "exitcode: -9" in done.stderr
    assert "device      cpu, 2 processes of 1 thread" in done.stderr
    assert "stopped by SIGTERM, saved at update " in done.stderr
    assert (run / "checkpoint_last").readlink() != Path("checkpoint_11")
    trained(nmtdeep, run, *DOUBLE, "--processes", 2)
    # The lock has the name of the launch that has overwritten the run.
    assert contents(run) | {".lock": ""} == contents(double[0])
