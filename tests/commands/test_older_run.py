"""A run and a data directory of commit 3119a4f (2026-11-27) are read, and give its numbers.

3119a4f.tar.xz has the recipe, the data directory, the run after 20 updates, and in `expected` what
that commit made of them: the records of 20 updates more, log-probabilities of ten references by the
average of checkpoints 10 and 20, and its translations of ten lines.
"""

import json
import shutil
from pathlib import Path

import pytest

from commands.running import Commands

ARCHIVE = Path(__file__).with_name("3119a4f.tar.xz")


@pytest.fixture
def older(tmp_path):
    shutil.unpack_archive(ARCHIVE, tmp_path)
    logs = tmp_path / "logs"
    logs.mkdir()
    return Commands(tmp_path / "3119a4f", logs)


def expected(older: Commands, name: str) -> list[str]:
    return (older.folder / "expected" / name).read_text(encoding="utf-8").splitlines()


def test_an_older_run_goes_on_as_it_did(older):
    options = ("--threads", 1, "--max-updates", 40, "--out", "run")
    done = older("train", "recipe.yaml", "--data", "data", *options)
    assert done.code == 0, done.err
    lines = (older.folder / "run" / "train.jsonl").read_text().splitlines()
    ours, theirs = (map(json.loads, each) for each in (lines, expected(older, "train.jsonl")))
    for one, other in zip(ours, theirs, strict=True):
        assert (one["kind"], one["update"]) == (other["kind"], other["update"])
        assert one.get("nll", 0.0) == pytest.approx(other.get("nll", 0.0), rel=1e-3)


def test_older_checkpoints_are_averaged_and_translate_and_score_as_they_did(older):
    done = older("average-checkpoints", "run", "--last", 2, "-o", "average")
    assert done.code == 0, done.err
    translated = older("translate", "-m", "average", "-i", "expected/lines.en", "-q")
    assert translated.out.splitlines() == expected(older, "lines.de"), translated.err
    texts = ("--source", "heldout.en", "--target", "heldout.de", "--log-prob")
    scored = older("score", "-m", "average", *texts)
    ours, theirs = scored.out.splitlines(), expected(older, "log_prob.txt")
    for one, other in zip(ours, theirs, strict=True):
        values = [float(value) for value in other.split("\t")]
        assert [float(value) for value in one.split("\t")] == pytest.approx(values, rel=1e-3)


def test_an_older_run_grows(older):
    done = older("grow", "run", "--out", "grown", "--layers", 4)
    assert done.code == 0, done.err
    translated = older("translate", "-m", "grown", "-i", "expected/lines.en", "-q")
    assert len(translated.out.splitlines()) == 10, translated.err
