"""The first half hour on a GPU, pretended on the CPU: from raw text to its tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .conftest import FOLDER, Load

DOCS, DEMO = FOLDER.parent / "docs", FOLDER.parent / "nmtdeep" / "demo" / "corpus"
SPLITS = {"train": (0, 150), "val": (150, 180), "test": (180, 200)}
Run = Callable[..., str]


@pytest.fixture(scope="module")
def program(load: Load) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER / "gpu"))
        return load("gpu/first_half_hour")


@pytest.fixture(scope="module")
def kit(program: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for language in ("en", "de"):
        lines = (DEMO / f"dev.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
        for name, (first, last) in SPLITS.items():
            text = "".join(lines[first:last])
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    program.main(["prepare", "--data", str(folder), "--kit", str(folder / "kit"), "--pretend"])
    return folder / "kit"


@pytest.fixture
def run(
    program: ModuleType,
    kit: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """`run("speed")`: what the command printed."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))

    def command(*words: object) -> str:
        place = ("--kit", kit, "--out", tmp_path, "--pretend")
        program.main([str(word) for word in (*words, *place)])
        return capsys.readouterr().out

    return command


@pytest.mark.parametrize(
    "part",
    [
        "fixed model",
        "ceilings",
        "base 6+6",
        "attention of short sentences",
        "beam-4 step, 512 sentences",
    ],
)
def test_a_part_prints_its_figures(run: Run, part: str) -> None:
    figures = json.loads(run("part", part).splitlines()[-1])
    assert figures
    # The CPU that prepared the answers is this one.
    assert part != "fixed model" or not any(figures.values())


def test_parts_that_fail_are_rows_with_their_errors(run: Run, tmp_path: Path) -> None:
    printed = run("works", "--minutes", 0)
    assert printed.count("| failed: not done after 1 s: ") == 3
    assert "not measured yet" in run("report")
    rows = (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    names = [json.loads(row)["part"] for row in rows]
    assert names == ["versions", "fixed model", "equations of tests/gpu"]


def test_a_model_that_computes_something_else_is_an_error(program: ModuleType) -> None:
    one: dict[str, Any] = {"loss": 2.0, "gradient norm": 1.0, "translations": ["a", "b"]}
    assert set(program.parts.differences(one, one).values()) == {0.0}
    near = program.parts.differences(one | {"loss": 2.00001}, one)
    assert near["off in loss"] == pytest.approx(5e-6)
    for changed in ({"loss": 2.1}, {"translations": ["a", "c"]}, {"gradient norm": 1.01}):
        with pytest.raises(AssertionError):
            program.parts.differences(one, one | changed)


def test_the_page_has_every_row_with_its_prediction(program: ModuleType, tmp_path: Path) -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    for name, part in program.PARTS.items():
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} |"))
        assert line.endswith(f"| {part.predicted} |")


@pytest.mark.slow
def test_all_steps_and_what_is_done_is_not_done_again(run: Run, tmp_path: Path) -> None:
    for step in ("works", "speed", "learns"):
        printed = run(step)
        assert "failed" not in printed and "not measured" not in printed, printed
    rows = (tmp_path / "rows.jsonl").read_bytes()
    assert len(list((tmp_path / "logs").iterdir())) == len(rows.splitlines())
    assert "failed" not in run("speed")
    assert (tmp_path / "rows.jsonl").read_bytes() == rows
