"""All measurements on a GPU, pretended on the CPU: from raw text to the table."""

import importlib
import json
import re
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
DEMO = FOLDER.parent / "nmtdeep" / "demo" / "corpus"
SPLITS = {"train": (0, 150), "val": (150, 180), "test": (180, 200)}


@pytest.fixture(scope="module")
def program():
    """The script benchmarks/gpu/measure.py as a module."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in (FOLDER, FOLDER / "gpu"):
            patch.syspath_prepend(str(folder))
        yield importlib.import_module("measure")


@pytest.fixture(scope="module")
def kit(program, tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for language in ("en", "de"):
        lines = (DEMO / f"dev.{language}").read_text(encoding="utf-8").splitlines(keepends=True)
        for name, (first, last) in SPLITS.items():
            text = "".join(lines[first:last])
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    program.main(["prepare", "--data", str(folder), "--kit", str(folder / "kit"), "--pretend"])
    return folder / "kit"


@pytest.fixture
def run(program, kit, tmp_path, monkeypatch, capsys):
    """`run("--only", "works")`: what the command printed."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))

    def command(*words: object) -> str:
        place = ("--kit", kit, "--out", tmp_path, "--pretend")
        program.main([str(word) for word in (*words, *place)])
        return capsys.readouterr().out

    return command


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (out / "rows.jsonl").read_text("utf-8").splitlines()]


def test_all_parts_are_rows_of_one_table(run, program, tmp_path, monkeypatch):
    """One part fails, which is not the end; the next command runs that part alone."""

    def here(command: Sequence[str], log: Path, limit: float) -> int:
        """As `run`, in this process, which has imported everything."""
        with log.open("w", encoding="utf-8") as output, redirect_stdout(output):
            try:
                program.main(command[1:])
            except (Exception, SystemExit):
                traceback.print_exc(file=output)
                return 1
        return 0

    def fails(place: object) -> None:
        raise ValueError("x" * 400)

    monkeypatch.setattr(program, "run", here)
    part = program.PARTS["plain 30+6"]
    monkeypatch.setitem(program.PARTS, "plain 30+6", part._replace(measure=fails))
    printed = run()
    found = {row["part"]: row for row in rows(tmp_path)}
    assert list(found) == list(program.PARTS)
    assert [name for name, row in found.items() if "figures" not in row] == ["plain 30+6"]
    table = (tmp_path / "table.md").read_text("utf-8")
    assert printed.endswith(table) and len(table) < 8000
    assert {line.count("|") for line in table.splitlines()} == {5}

    monkeypatch.setitem(program.PARTS, "plain 30+6", part)
    assert "failed" not in run()
    assert [row["part"] for row in rows(tmp_path)] == [*found, "plain 30+6"]
    figures = {row["part"]: row["figures"] for row in rows(tmp_path) if "figures" in row}
    # The CPU that prepared the answers is this one.
    assert not any(figures["fixed model"].values())
    where = figures["base 6+6"]["where"]
    families = [value for name, value in where.items() if re.match("ms (?!of)", name)]
    assert where["ms of kernels"] == pytest.approx(sum(families), abs=0.05)
