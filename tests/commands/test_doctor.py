"""`nmtdeep doctor` as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

from commands.running import Commands, value

SIDES = ("en", "de")


def test_the_doctor_finds_no_problems_in_sound_text(nmtdeep: Commands) -> None:
    done = nmtdeep("doctor", "--train", "train", "-s", "en", "-t", "de")
    assert done.code == 0, done.out + done.err
    assert f"torch {torch.__version__}" in value(done.out, "versions")
    assert re.search(r"fp32 [\d,]+ GFLOP/s, bf16 [\d,]+ GFLOP/s", value(done.out, "cpu products"))
    assert done.out.endswith("no problems found\n")


def test_the_doctor_of_a_data_directory_counts_what_preprocessing_counted(
    nmtdeep: Commands, data: Path
) -> None:
    done = nmtdeep("doctor", "--data", data)
    splits = json.loads((data / "data.json").read_text())["report"]["splits"]
    for name, split in splits.items():
        rates = [
            f"{100 * unknown / tokens:.3f} %"
            for unknown, tokens in zip(split["unknown"], split["tokens"], strict=True)
        ]
        assert re.search(rf"^ {name} .* {' +'.join(rates)}", done.out, re.M)
    problems = [line for line in done.out.splitlines() if line.startswith("PROBLEM")]
    assert (done.code == 1) == bool(problems)
    assert not [line for line in problems if "unknown" not in line]
    assert "planned checkpoints" in value(done.out, "disk")


def test_the_doctor_names_each_problem_of_plain_text(
    nmtdeep: Commands, folder: Path, tmp_path: Path
) -> None:
    text = {side: (folder / f"train.{side}").read_text("utf-8").splitlines() for side in SIDES}
    write(tmp_path / "train", text["en"], text["de"])
    write(tmp_path / "swapped", text["de"][:20], text["en"][:20])
    write(tmp_path / "seen", text["en"][:20], text["de"][:20])
    write(tmp_path / "copied", text["en"], text["en"])
    write(tmp_path / "shorter", text["en"], text["de"][:-1])
    write(tmp_path / "blank", ["", *text["en"][:9]], text["de"][:10])
    write(tmp_path / "shifted", [english[:2] for english in text["en"][:5]] + text["en"][5:10],
          text["de"][:10])  # fmt: skip
    names = ["seen", "copied", "shorter", "blank", "shifted"]
    tests = [word for name in names for word in ("--test", tmp_path / name)]
    done = nmtdeep(
        "doctor", "--train", tmp_path / "train", "--valid", tmp_path / "swapped", *tests,
        "-s", "en", "-t", "de",
    )  # fmt: skip
    assert done.code == 1
    problems = [line for line in done.out.splitlines() if line.startswith("PROBLEM")]
    for words in (
        "seen: 100.0 % of the pairs are in train too",
        "copied: 100.0 % of the pairs have identical sides",
        "shorter: 200 en lines but 199 de lines",
        "blank: 10.0 % of the pairs have a blank side",
        "shifted: 60.0 % of the pairs are 3 times longer or shorter",
    ):
        assert [line for line in problems if words in line], f"{words}:\n{done.out}"
    assert not [line for line in problems if "  train:" in line]


def write(prefix: Path, *sides: list[str]) -> None:
    for language, lines in zip(SIDES, sides, strict=True):
        path = prefix.with_name(f"{prefix.name}.{language}")
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def test_text_without_languages_is_an_error(nmtdeep: Commands) -> None:
    done = nmtdeep("doctor", "--train", "train", "-s", "en")
    assert done.code == 2
    assert "add -s and -t" in done.err
