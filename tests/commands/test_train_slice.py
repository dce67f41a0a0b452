"""A training in slices, and what is packed of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT

pytestmark = pytest.mark.slow


def run_slice(folder: Path, minutes: float, run: Path, *more: str) -> subprocess.CompletedProcess:
    script = str(ROOT / "scripts/train_slice.py")
    own = ("--minutes", str(minutes), "--results", str(run / "packed"), *more, "--")
    words = ("tiny.yaml", "--data", "data", "--out", str(run), "--device", "cpu", "--threads", "1")
    command = [sys.executable, script, *own, *words, "--max-updates", "250"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("data")
def test_slices_go_on_from_one_another(folder, nmtdeep, tmp_path):
    run = tmp_path / "run"
    slices = [run_slice(folder, 0.1, run)]
    while slices[-1].returncode == 75:
        slices.append(run_slice(folder, 0.3, run))
    last = slices[-1]
    assert last.returncode == 0, last.stderr
    assert len(slices) > 1 and "not done (code 75)" in slices[0].stdout
    assert last.stdout.splitlines()[-1] == "done"
    packed = run / "packed"
    assert json.loads((packed / "scores.json").read_text())["trained_to"] == "checkpoint_250"
    whole = nmtdeep("translate", "-m", run, "-i", "test.en", "-q")
    kept = nmtdeep("translate", "-m", packed / "model", "-i", "test.en", "-q")
    assert whole.code == kept.code == 0 and whole.out == kept.out
    none = run_slice(folder, 1, run, "--largest", "1e-6")
    assert "left out: " in none.stdout
