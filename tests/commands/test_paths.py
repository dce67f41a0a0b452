"""Names of files and folders: spaces, newlines, Unicode, dashes, length; by the real commands."""

from __future__ import annotations

import shutil

import pytest

from commands.running import Commands

NASTY = {
    "spaces, Unicode": " two  words\nBäume 猫 שלום e\u0301 👩\u200d👩",
    "terminal": "\x1b[31mred\x07\r",
    "YAML and shell": "a: {b}, *c # 'd\" $e;f=g",
    "long": "x" * 240,
}


@pytest.mark.parametrize("name", NASTY.values(), ids=NASTY)
def test_all_steps_in_a_folder_of_that_name(nmtdeep, tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    for file in ("train.en", "train.de", "valid.en", "valid.de", "tiny.yaml"):
        shutil.copy(nmtdeep.folder / file, place / f"-{file}")
    here = Commands(place, nmtdeep.logs)
    here.count = 1000 + 100 * list(NASTY.values()).index(name)
    recipe, run = place / "-tiny.yaml", place / name
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
    _errors_are_one_line(here, place, name)


def _errors_are_one_line(here, place, name):
    gone = place / f"{name[:100]}gone"
    wrong = [
        ("recipes", "show", f"{gone}.yaml"),
        ("recipes", "show", place / "-tiny.yaml", f"{name[:100]}=1"),
        ("preprocess", place / "-tiny.yaml", "--train", gone, "--valid", gone, "--out", "new"),
        ("train", place / "-tiny.yaml", "--data", gone, "--out", "new"),
        ("translate", "-m", gone),
        ("translate", "-m", place / name, "-i", gone),
        ("score", gone, gone),
    ]
    for words in wrong:
        done = here(*words)
        assert (done.code, done.out) == (2, ""), words
        (line,) = done.err.removesuffix("\n").split("\n")
        assert line.startswith("nmtdeep: error: ")
        assert line.isprintable()


def test_a_name_that_is_too_long_for_a_file(nmtdeep, tmp_path):
    long = tmp_path / ("x" * 5000)
    for words in [
        ("recipes", "show", f"{long}.yaml"),
        ("preprocess", "tiny.yaml", "--train", long, "--valid", "valid", "--out", tmp_path / "a"),
        ("preprocess", "tiny.yaml", "--train", "train", "--valid", "valid", "--out", long),
        ("train", "tiny.yaml", "--data", long, "--out", tmp_path / "a"),
        ("train", "tiny.yaml", "--data", "data", "--out", long),
        ("translate", "-m", long),
        ("score", long, long),
    ]:
        done = nmtdeep(*words)
        assert done.code == 2, (words[0], done.err[-300:])
        assert len(done.err.splitlines()) == 1
