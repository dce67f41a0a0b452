"""What Eole is given, and what its log says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

# Of a run of Eole 0.6.4.
LOG = """
Step  8/   16; acc: 8.9; ppl: 1514.72; xent: 7.32; bsz: 2956/3078/193; 1286/1339 tok/s; 21 sec;
Step 16/   16; acc: 5.5; ppl: 814.72; xent: 6.70; bsz: 2968/3116/204; 1207/1267 tok/s; 42 sec;
"""


@pytest.fixture
def eole(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("eole")


def fake(folder: Path, script: str) -> Path:
    command = folder / "eole"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return command


def test_speed_is_that_of_target_tokens_in_the_second_half(eole: Any, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    command = fake(tmp_path, f"cat {tmp_path}/log >&2")
    assert eole.eole_speed(command, tmp_path / "any.yaml") == 1267


@pytest.mark.parametrize("script", ["echo no such option; exit 3", "echo no such option"])
def test_an_eole_that_fails_ends_the_comparison(eole: Any, tmp_path: Path, script: str) -> None:
    with pytest.raises(SystemExit, match="no such option"):
        eole.eole_speed(fake(tmp_path, script), tmp_path / "any.yaml")


def test_eole_trains_on_our_subwords(eole: Any, tiny_run: Any, tmp_path: Path) -> None:
    data = tiny_run.data
    eole.write_corpus(data, tmp_path)
    for name, side, corpus in (
        ("source", data.pipeline.source, data.corpus("train").source),
        ("target", data.pipeline.target, data.corpus("train").target),
    ):
        lines = (tmp_path / name).read_text(encoding="utf-8").splitlines()
        again = [[*side.vocabulary.ids(line.split(" ")), 1] for line in lines]
        assert again == [list(corpus[row]) for row in range(len(corpus))]
