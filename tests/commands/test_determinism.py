"""The same command in another process, under another hash seed, writes the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands.runs import contents, files

pytestmark = pytest.mark.slow

SEEDS = ("1", "2")


def run(folder: Path, seed: str, *words: object) -> None:
    """A command in a process of its own: those of the fork server share one hash seed."""
    command = [sys.executable, "-m", "nmtdeep", *map(str, words)]
    environment = os.environ | {"PYTHONHASHSEED": seed}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=True)


@pytest.mark.parametrize("recipe", ["tiny.yaml", "dropout.yaml"])
def test_preprocess_writes_the_same_bytes(nmtdeep, tmp_path, recipe):
    for seed in SEEDS:
        run(
            nmtdeep.folder, seed, "preprocess", recipe, "--train", "train", "--valid", "valid",
            "--test", "test", "--out", tmp_path / seed, "--workers", seed,
        )  # fmt: skip
    first, second = (files(tmp_path / seed) for seed in SEEDS)
    assert "train.de.tokens" in first
    assert first == second


def test_train_writes_the_same_bytes(nmtdeep, dropout_data, tmp_path):
    for seed in SEEDS:
        run(
            nmtdeep.folder, seed, "train", "dropout.yaml", "model.dropout.residual=0.1",
            "training.seed=7", "--max-updates", 8,
            "--data", dropout_data, "--out", tmp_path / seed, "--device", "cpu", "--threads", 1,
        )  # fmt: skip
    first, second = (contents(tmp_path / seed) for seed in SEEDS)
    assert "model.safetensors" in first["checkpoint_8"]
    assert first == second


@pytest.mark.parametrize(
    "ways",
    [
        [("--threads", 1), ("--threads", 2), ("--processes", 2)],
        [("--max-tokens", 40), ("--max-tokens", 20000)],
    ],
    ids=["threads and processes", "size of batches"],
)
def test_translate_prints_the_same_text(nmtdeep, whole, ways):
    printed = {
        nmtdeep("translate", "-m", whole, "-i", "valid.en", "--device", "cpu", *way).out
        for way in ways
    }
    assert len(printed) == 1 and printed.pop().count("\n") == 20
