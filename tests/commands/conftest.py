"""A small real corpus, preprocessed and trained on by the real commands."""

from __future__ import annotations

import gzip
import os
from importlib.resources import files
from pathlib import Path

import pytest

from commands.running import Commands
from commands.runs import DROPOUT_RECIPE, RECIPE, train

PAIRS = {"train": 200, "valid": 20, "test": 12}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text of the shipped corpus, and recipes."""
    folder = tmp_path_factory.mktemp("commands")
    corpus = files("nmtdeep.demo") / "corpus"
    for language in ("en", "de"):
        packed = (corpus / f"train.{language}.gz").read_bytes()
        lines = gzip.decompress(packed).decode("utf-8").split("\n")
        first = 0
        for split, count in PAIRS.items():
            text = "".join(f"{line}\n" for line in lines[first : first + count])
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
            first += count
    (folder / "tiny.yaml").write_text(RECIPE)
    (folder / "dropout.yaml").write_text(DROPOUT_RECIPE)
    return folder


@pytest.fixture(scope="session")
def nmtdeep(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The command, run in `folder`."""
    os.environ["OMP_NUM_THREADS"] = "1"
    return Commands(folder, tmp_path_factory.mktemp("logs"))


def _preprocess(nmtdeep: Commands, recipe: str, out: str) -> Path:
    done = nmtdeep(
        "preprocess", recipe, "--train", "train", "--valid", "valid", "--test", "test",
        "--out", out, "--workers", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    return nmtdeep.folder / out


@pytest.fixture(scope="session")
def data(nmtdeep: Commands) -> Path:
    return _preprocess(nmtdeep, "tiny.yaml", "data")


@pytest.fixture(scope="session")
def dropout_data(nmtdeep: Commands) -> Path:
    return _preprocess(nmtdeep, "dropout.yaml", "data-dropout")


@pytest.fixture(scope="session")
def whole(nmtdeep: Commands, data: Path) -> Path:
    """A run that nothing interrupted; not to be changed."""
    done = train(nmtdeep, "whole")
    assert done.code == 0, done.err
    return nmtdeep.folder / "whole"


@pytest.fixture(scope="session")
def whole_dropout(nmtdeep: Commands, dropout_data: Path) -> Path:
    """The same under BPE-dropout, ended by patience."""
    done = train(nmtdeep, "whole-dropout", recipe="dropout.yaml", data="data-dropout")
    assert done.code == 0, done.err
    return nmtdeep.folder / "whole-dropout"
