"""The benchmark at true width, at a width that a test can afford."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pages import ROOT


def run(folder: Path, out: Path, minutes: float, *more: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable, str(ROOT / "benchmarks/true_width.py"), "--data", "data", "--out", str(out),
        "--recipe", "tiny.yaml", "--device", "cpu", "--depths", "1", "2", "--methods", "pre-norm",
        "admin", "--minutes", str(minutes), "training.max_updates=6", *more,
    ]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("data")
def test_slices_go_on_until_all_are_scored(folder, tmp_path):
    first = run(folder, tmp_path, 0.15)
    assert first.returncode in (0, 75), first.stderr
    done = run(folder, tmp_path, 5)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "true_width.json").read_text())
    assert list(results) == ["pre-norm-1+1", "admin-1+1", "pre-norm-2+2", "admin-2+2"]
    for name, one in results.items():
        assert one["updates"] == 6
        assert {score["metric"] for score in one["scores"]} >= {"bleu", "chrf"}
        assert name in done.stdout
    layers = 16 * 16 * (4 + 8) + 2 * 16 * 32 * 2  # weights of one more layer on both sides
    for method in ("pre-norm", "admin"):
        one, two = (results[f"{method}-{depth}+{depth}"]["parameters"] for depth in (1, 2))
        assert layers < two - one < 1.2 * layers
    refused = run(folder, tmp_path / "other", 5, "training.schedule.lr=x")
    assert refused.returncode == 1
    assert "training.schedule.lr" in refused.stderr


@pytest.mark.usefixtures("data")
def test_a_divergence_is_a_result(folder, tmp_path):
    done = run(
        folder, tmp_path, 5, "training.schedule.lr=1e30", "training.schedule.warmup_updates=1"
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "true_width.json").read_text())
    assert {one["diverged"] for one in results.values()} == {True}
    assert "diverged" in done.stdout
