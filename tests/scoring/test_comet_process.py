"""COMET in another Python: a stand-in whose scores are calculated by hand."""

import hashlib
import os
import select
import signal
import subprocess
import sys

import pytest

from nmtdeep.errors import UserError
from nmtdeep.scoring import score_texts
from nmtdeep.scoring.comet import Comet, CometModel, opened
from nmtdeep.scoring.significance import compare_systems

from .stand_in import model, python_with_stand_in

SOURCES = ["abcd", "ab", "abcd"]
REFERENCES = ["xyz", "x", "xyz"]
HYPOTHESES = ["x", "xyz", "x"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return python_with_stand_in(tmp_path, monkeypatch)


def test_a_score_is_the_mean_and_each_sample_is_scored_once(folder):
    metric = Comet(model(folder, "with references"), SOURCES)
    (score,) = score_texts(HYPOTHESES, [REFERENCES], {"comet": metric})
    assert score.value == pytest.approx(100 * (-2 / 4 - 2 / 2 - 2 / 4) / 3)
    assert len((folder / "scored").read_text().splitlines()) == 2
    checksum = hashlib.sha256(b"with references").hexdigest()[:16]
    parts = ["nrefs:1", "model:with references", f"sha256:{checksum}", "scale:100", "comet:0"]
    assert score.signature.split("|")[:5] == parts
    _, other = compare_systems(("a", HYPOTHESES), [("b", REFERENCES)], [REFERENCES], {"c": metric})
    assert (other.value, other.difference) == pytest.approx((0, -score.value))
    with pytest.raises(UserError, match="takes one reference"):
        score_texts(HYPOTHESES, [REFERENCES, REFERENCES], {"comet": metric})


def test_a_model_without_references_ignores_them(folder):
    metric = Comet(model(folder, "without"), SOURCES)
    (score,) = score_texts(HYPOTHESES, [REFERENCES], {"comet": metric})
    assert score.value == pytest.approx(100 * (-4 / 4 - 2 / 2 - 4 / 4) / 3)


def test_scores_are_in_the_order_of_the_samples_of_several_requests(folder):
    lengths = [(7 * place) % 50 for place in range(5000)]
    scores = CometModel(model(folder, "without"), "cpu").scores([("s", "x" * n) for n in lengths])
    assert scores == [-abs(n - 5) for n in lengths]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("damaged", r"damaged/checkpoints/model\.ckpt: cannot be read: not a checkpoint: "),
        ("empty", r"empty/checkpoints/model\.ckpt: cannot be read: .* No such file"),
    ],
)
def test_a_model_that_cannot_be_read_is_one_line(folder, name, problem):
    path = model(folder, name)
    if name == "empty":
        (folder / name / "checkpoints" / "model.ckpt").unlink()
    with pytest.raises(UserError, match=problem) as raised:
        CometModel(path, "cpu")
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "reason"), [("fail", r"code 1 \(MemoryError: no memory left\)"), ("die", "code -9")]
)
def test_a_process_that_dies_is_one_line(folder, text, reason):
    network = CometModel(model(folder, "without"), "cpu")
    for _ in range(2):
        with pytest.raises(UserError, match=f"without: the process of COMET .* {reason}"):
            network.scores([("s", text)])


def test_an_interrupted_request_leaves_no_answer_to_the_next(folder):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        network = CometModel(model(folder, "without"), "cpu")
        with pytest.raises(KeyboardInterrupt):
            network.scores([("s", "interrupt")])
        with pytest.raises(UserError, match="ended with exit code -9"):
            network.scores([("s", "other")])
        shared = opened(network.name, "cpu")
        with pytest.raises(KeyboardInterrupt):
            shared.scores([("s", "interrupt")])
        again = opened(network.name, "cpu")
        assert again is not shared and again is opened(network.name, "cpu")
        assert len(again.scores([("s", "other")])) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_python_without_comet_and_none_at_all(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("NMTDEEP_COMET_PYTHON", str(python))
    with pytest.raises(UserError, match=r"unbabel-comet is not installed for .*: pip install"):
        CometModel("any", "cpu")
    monkeypatch.setenv("NMTDEEP_COMET_PYTHON", str(tmp_path / "none"))
    with pytest.raises(UserError, match=r"NMTDEEP_COMET_PYTHON: .*/none: No such file"):
        CometModel("any", "cpu")


KEEPS_ONE = """
import sys, time
from nmtdeep.scoring.comet import CometModel
network = CometModel(sys.argv[1], "cpu")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_the_process_survives_ctrl_c_and_ends_with_its_parent(folder, monkeypatch, sent):
    alive = folder / "alive"
    os.mkfifo(alive)
    monkeypatch.setenv("ALIVE", str(alive))
    command = [sys.executable, "-c", KEEPS_ONE, model(folder, "without")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        with alive.open() as end:  # until the process of COMET ends
            os.kill(int(end.readline()), signal.SIGINT)  # as a terminal does: not its decision
            assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
            parent.send_signal(sent)
            ended, _, _ = select.select([end], [], [], 60)
            assert ended and end.read() == ""
        parent.wait()
