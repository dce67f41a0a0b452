"""A mistake causes a helpful hint with the names that the user typed."""

import pytest


@pytest.mark.parametrize(
    "command",
    [
        "train tiny.yaml --data data --out",
        "preprocess tiny.yaml --train train --valid valid --out",
        "grow whole --layers 4 --out",
        "export whole --to huggingface --out",
        "average-checkpoints whole --last 2 --output",
        "convert fairseq model.pt dict.txt --output",
        "fetch multi30k-en-de --output",
        "demo --out",
    ],
)
def test_a_file_cannot_be_a_directory(nmtdeep, whole, command):
    (nmtdeep.folder / "a-file").write_text("mine")
    done = nmtdeep(*command.split(), "a-file/below")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "error: a-file: is a file" in done.err and command.split()[-1] in done.err
    assert (nmtdeep.folder / "a-file").read_text() == "mine"


@pytest.mark.parametrize(
    ("command", "where"),
    [
        ("translate -i test.en -m data", "data"),
        ("translate -i test.en -m whole/checkpoint_11/model.safetensors", "model.safetensors"),
        ("translate -i test.en -m tiny.yaml", "tiny.yaml"),
        ("translate -i test.en -m whole -o data", "data"),
        ("convert fairseq train.en train.de -o converted", "train.en"),
    ],
)
def test_a_path_of_another_kind(nmtdeep, data, whole, command, where):
    done = nmtdeep(*command.split())
    assert done.code == 2 and done.err.count("\n") == 1
    assert f"{where}: " in done.err
