"""Processes that torchrun started: the same training, deaths that are named, resuming."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from commands.running import Commands, Finished, Interrupt
from commands.runs import contents, losses, train, words

pytestmark = pytest.mark.usefixtures("data")
TRAINEE = "nmtdeep.training.trainee"
SMALL = ("--max-tokens", 200)
SMOOTH = (
    "training.optimizer.epsilon=1e-3",
    "training.precision=fp32",
    "training.schedule.lr=5e-3",
    "model.dropout.residual=0.2",
)


def together(
    nmtdeep: Commands, run: Path, *overrides: object, interrupts: dict[int, Interrupt] | None = None
) -> list[Finished]:
    """Two processes with the environment that torchrun gives them on one machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    everywhere = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": str(port)}
    everywhere |= {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    waiting = [
        nmtdeep.start(
            *words(run, *SMALL, *overrides),
            interrupt=(interrupts or {}).get(rank),
            environment={"RANK": str(rank), "LOCAL_RANK": str(rank), **everywhere},
        )
        for rank in range(2)
    ]
    return [finish() for finish in waiting]


@pytest.fixture(scope="module")
def pair(nmtdeep: Commands, data: Path) -> Path:
    """A run of two processes that the command started itself; not to be changed."""
    done = train(nmtdeep, "pair", *SMALL, "--processes", 2)
    assert done.code == 0, done.err
    return nmtdeep.folder / "pair"


def test_torchrun_is_processes_and_deaths_are_named(nmtdeep, pair, tmp_path):
    run = tmp_path / "run"
    killed = {1: Interrupt(f"{TRAINEE}:train_update", 4, "kill")}
    first, second = together(nmtdeep, run, interrupts=killed)
    assert (first.code, second.code) == (2, -9)
    assert f"rank 1 of 2 on {socket.gethostname()}: killed, stopped or cut off" in first.err
    assert "the last checkpoint is whole, and the same command goes on from there" in first.err
    assert (run / "checkpoint_last").readlink() == Path("checkpoint_3")
    left = {0: Interrupt(f"{TRAINEE}:train_update", 3, "term")}
    first, second = together(nmtdeep, run, interrupts=left)
    assert (first.code, second.code) == (143, 0), first.err
    first, second = together(nmtdeep, run)
    assert (first.code, second.code) == (0, 0), first.err
    assert (second.out, second.err) == ("", "")
    assert contents(run) == contents(pair)


def test_processes_and_torchrun_are_refused(nmtdeep, tmp_path):
    for refused in together(nmtdeep, tmp_path / "run", "--processes", 2):
        assert refused.code == 2
        assert "torchrun has started 2 processes: leave --processes out" in refused.err


WOUNDED = """
import os
from commands.running import Interrupt
from nmtdeep.cli.main import run
if (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", "0"):
    Interrupt("nmtdeep.training.trainee:train_update", 5, "kill").install()
run()
"""


def test_torchrun_starts_anew_and_goes_on(nmtdeep, pair, tmp_path):
    script = tmp_path / "wounded.py"
    script.write_text(WOUNDED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    arguments = [str(one) for one in words(str(tmp_path / "run"), *SMALL)]
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
    assert done.returncode == 0, done.stderr
    assert f"rank 1 of 2 on {socket.gethostname()}: killed, stopped or cut off" in done.stderr
    assert "device      cpu, 2 processes of 1 thread" in done.stderr
    assert contents(tmp_path / "run") == contents(pair)


@pytest.mark.skipif(
    torch.__version__ < "2.8", reason="FSDP2 sums gradients on Gloo from torch 2.8 on"
)
def test_shards_resume_as_a_whole_and_the_whole_as_shards(nmtdeep, tmp_path):
    alone, run = tmp_path / "alone", tmp_path / "run"
    assert train(nmtdeep, alone, *SMALL, *SMOOTH).code == 0
    parts = ((4, "full", 2), (8, "none", 1), (11, "full", 2))
    for updates, sharding, processes in parts:
        done = train(
            nmtdeep, run, *SMALL, *SMOOTH, f"training.sharding={sharding}", "--processes",
            processes, "--max-updates", updates, "training.checkpoints.average_last=0",
        )  # fmt: skip
        assert done.code == 0, done.err
    assert losses(run) == pytest.approx(losses(alone), rel=2e-5)
    for name in ("model.safetensors", "optimizer.safetensors"):
        one, two = (load_file(path / "checkpoint_last" / name) for path in (run, alone))
        assert {key: value.shape for key, value in one.items()} == {
            key: value.shape for key, value in two.items()
        }


def test_what_does_not_go_with_shards(nmtdeep, tmp_path):
    for choice, why in (
        ((), "full spreads a model over several processes: give --processes"),
        (("training.optimizer=muon",), "muon needs whole matrices: set optimizer: adam"),
        (("--precision", "fp16"), "fp16 scales by what one process sees"),
        (("training.stages=[{encoder: 1, updates: 2}, {}]",), "a model that grows must be whole"),
    ):
        refused = train(nmtdeep, tmp_path / "run", "training.sharding=full", *choice)
        assert refused.code == 2
        assert why in refused.err
