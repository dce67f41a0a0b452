"""The same command in another process, under another hash seed, writes the same bytes."""

import json
import os
import subprocess
import sys

import pytest

from commands.runs import contents, files

pytestmark = pytest.mark.slow

SEEDS = ("1", "2")
COMMANDS = """
import json, sys
from nmtdeep.cli.main import app

for words in json.loads(sys.argv[1]):
    app(words, standalone_mode=False)
"""


@pytest.fixture(scope="module")
def written(nmtdeep, tmp_path_factory):
    """What the same commands wrote in processes of their own: the fork server has one hash seed."""
    folders = []
    for seed in SEEDS:
        folder = tmp_path_factory.mktemp("written")
        text = ("--train", "train", "--valid", "valid", "--test", "test", "--workers", seed)
        commands = [
            ("preprocess", "tiny.yaml", *text, "--out", folder / "tiny"),
            ("preprocess", "dropout.yaml", *text, "--out", folder / "dropout"),
            ("train", "dropout.yaml", "model.dropout.residual=0.1", "training.seed=7",
             "--max-updates", 8, "--data", folder / "dropout", "--out", folder / "run",
             "--device", "cpu", "--threads", 1),
        ]  # fmt: skip
        words = json.dumps([list(map(str, command)) for command in commands])
        environment = os.environ | {"PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", COMMANDS, words]
        subprocess.run(
            command, cwd=nmtdeep.folder, env=environment, capture_output=True, check=True
        )
        folders.append(folder)
    return folders


def test_preprocess_and_train_write_the_same_bytes(written):
    for recipe in ("tiny", "dropout"):
        first, second = (files(folder / recipe) for folder in written)
        assert "train.de.tokens" in first
        assert first == second
    first, second = (contents(folder / "run") for folder in written)
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
