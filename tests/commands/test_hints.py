"""A mistake causes a helpful hint with the names that the user typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.running import Commands, Interrupt


@pytest.mark.parametrize("inside", ["", "/below"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("train tiny.yaml --data data --out", "--out"),
        ("preprocess tiny.yaml --train train --valid valid --out", "--out"),
        ("grow whole --layers 4 --out", "--out"),
        ("export whole --to huggingface --out", "--out"),
        ("average-checkpoints whole --last 2 --output", "--output"),
        ("convert fairseq model.pt dict.txt --output", "--output"),
        ("fetch multi30k-en-de --output", "--output"),
        ("demo --out", "--out"),
    ],
)
def test_a_file_cannot_be_a_directory(
    nmtdeep: Commands, whole: Path, command: str, option: str, inside: str
) -> None:
    (nmtdeep.folder / "a-file").write_text("mine")
    done = nmtdeep(*command.split(), f"a-file{inside}")
    said = f"nmtdeep: error: a-file: is a file, not a directory: choose another {option}\n"
    assert (done.code, done.out, done.err) == (2, "", said)
    assert (nmtdeep.folder / "a-file").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "translate -i test.en -m data",
            "data: a data directory: pass the run directory of a model that was trained",
        ),
        (
            "translate -i test.en -m whole/checkpoint_11/model.safetensors",
            "model.safetensors: a file: pass the directory that it is in, whole/checkpoint_11",
        ),
        ("translate -i test.en -m tiny.yaml", "tiny.yaml: a file: pass a run"),
        ("translate -i test.en -m whole -o data", "data: is a directory: name a file in it by"),
        (
            "convert fairseq train.en train.de -o converted",
            "train.en: not a checkpoint that torch can read",
        ),
    ],
)
def test_a_path_of_another_kind(
    nmtdeep: Commands, data: Path, whole: Path, command: str, message: str
) -> None:
    done = nmtdeep(*command.split())
    assert done.code == 2 and done.err.count("\n") == 1
    assert message in done.err


def test_a_command_names_the_checkpoint_that_it_read(nmtdeep: Commands, whole: Path) -> None:
    best = (whole / "checkpoint_best").resolve().name
    done = nmtdeep("grow", "whole", "--layers", 4, "--out", "typed")
    assert done.out.startswith(f"typed/{best}: grown from whole/{best}\n")
    pytest.importorskip("ctranslate2")
    done = nmtdeep("export", "whole", "--to", "ctranslate2", "-o", "typed-3")
    assert done.out.startswith(f"typed-3: whole/{best} for CTranslate2")


def test_ctrl_c_prints_a_line(nmtdeep: Commands, data: Path) -> None:
    done = nmtdeep(
        "preprocess", "tiny.yaml", "--train", "train", "--valid", "valid", "--out", "stopped",
        interrupt=Interrupt("nmtdeep.files:write_sums", what="int"),
    )  # fmt: skip
    assert done.code == 130
    said = "nmtdeep preprocess: interrupted by Ctrl-C"
    assert done.err.splitlines()[-1] == said
    assert not (nmtdeep.folder / "stopped").exists()
