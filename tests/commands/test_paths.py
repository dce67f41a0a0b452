"""Paths: nasty names, files where folders are wanted; by the real commands."""

import shutil

import pytest

from commands.running import Commands

# Spaces, Unicode; marks of a terminal, of YAML and of a shell; a long name.
NASTY = " two  words\nBäume 猫 שלום e\u0301 👩\u200d👩 \x1b[31mred\x07\r" + (
    "a: {b}, *c # 'd\" $e;f=g" + "x" * 150
)


def test_all_steps_in_a_folder_of_that_name(nmtdeep, tmp_path):
    place = tmp_path / NASTY
    place.mkdir()
    for file in ("train.en", "train.de", "valid.en", "valid.de", "tiny.yaml"):
        shutil.copy(nmtdeep.folder / file, place / f"-{file}")
    here = Commands(place, nmtdeep.logs)
    here.count = 1000
    recipe, run = place / "-tiny.yaml", place / NASTY
    steps = [
        ("preprocess", recipe, "--train", place / "-train", "--valid", place / "-valid",
         "--out", place / "data", "--workers", 1),
        ("train", recipe, "training.max_updates=2", "--data", place / "data", "--out", run,
         "--device", "cpu", "--threads", 1),
        ("translate", "-m", run, "-i", place / "-valid.en", "-o", place / "-out.de"),
        ("score", "--", "-out.de", "-valid.de"),
    ]  # fmt: skip
    for words in steps:
        done = here(*words)
        assert done.code == 0, done.err
    assert done.out.startswith("BLEU")
    lines = [(place / file).read_bytes().count(b"\n") for file in ("-valid.en", "-out.de")]
    assert lines[0] == lines[1] > 0
    mistakes_are_one_line(here, recipe, place / f"{NASTY[:100]}gone")


def test_a_name_that_is_too_long_for_a_file(nmtdeep, data, tmp_path):
    long = tmp_path / ("x" * 5000)
    mistakes_are_one_line(nmtdeep, "tiny.yaml", long)
    text = ("preprocess", "tiny.yaml", "--train", "train", "--valid", "valid")
    refused(nmtdeep(*text, "--out", long))
    refused(nmtdeep("train", "tiny.yaml", "--data", "data", "--out", long))


def mistakes_are_one_line(nmtdeep, recipe, missing):
    """Name something that is not there in each command."""
    for words in [
        ("recipes", "show", f"{missing}.yaml"),
        ("preprocess", recipe, "--train", missing, "--valid", missing, "--out", "new"),
        ("train", recipe, "--data", missing, "--out", "new"),
        ("translate", "-m", missing),
        ("score", missing, missing),
    ]:
        refused(nmtdeep(*words))


def refused(done):
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.removesuffix("\n").split("\n")
    assert line.startswith("nmtdeep: error: ")
    assert line.isprintable()


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
