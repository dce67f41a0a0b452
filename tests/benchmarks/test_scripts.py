"""The scripts that compare run from their options to their tables, on a tiny corpus."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHAPE = ("--shape", "8/12/2/1+1", "--tokens", "200")
Run = Callable[..., str]


class Here:
    """What `apart.Apart` does, in this process: a child could not import a script of a test."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self.stack = ExitStack()
        _, self.turn = make(self.stack, *arguments)
        self.memory = 0
        self.turns: list[Any] = []

    def __call__(self) -> None:
        turns, apart = map(importlib.import_module, ("turns", "apart"))
        started = turns.clocks()
        result = self.turn()
        self.turns.append(apart.Done(turns.since(started), result))

    def close(self) -> None:
        self.stack.close()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("depth.py", ...)`: what the script printed, in a process that has imported torch."""
    monkeypatch.syspath_prepend(str(FOLDER))
    floor = importlib.import_module("floor")
    monkeypatch.setitem(floor.SIDES, "cpu", 64)
    monkeypatch.setitem(floor.COPIED, "cpu", 2**16)

    def script(name: str, *words: object) -> str:
        monkeypatch.setattr(
            "sys.argv", [name, *map(str, words), "--repeats", "1", "--plain-malloc"]
        )
        spec = importlib.util.spec_from_file_location(f"script_{Path(name).stem}", FOLDER / name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if hasattr(module, "Apart"):
            monkeypatch.setattr(module, "Apart", Here)
        module.main()
        return capsys.readouterr().out

    return script


def rows(printed: str) -> list[list[str]]:
    """Cells of the tables."""
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_training(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, *SHAPE, "--updates", 2, "--precision", "bf16")
    printed = run("training.py", *words, "--norm", "pre_norm")
    names = ["nmtdeep", "naive, SDPA", "naive, tuned", "nn.Transformer", "products alone"]
    assert [row[0] for row in rows(printed)] == [*names, "best peer"]
    assert "of the time waiting for data" in printed
    assert float(re.findall(r"gradients equal to\s(\S+)", printed)[0]) < 1e-4


def test_depth(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, *SHAPE, "--depths", 1, 3, "--norms", "post_norm")
    found = [row[0] for row in rows(run("depth.py", *words))]
    plain = ["residual, 1", "residual, 3", "DLCL, 3", "sparse blocks, 3"]
    assert found[:4] == plain
    assert found[4:] in ([], ["residual, 3, recomputed"])


def test_curves(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, *SHAPE, "--updates", 4, "--window", 2, "--warm-up", 2)
    printed = run("curves.py", *words)
    found = rows(printed)
    assert [row[0] for row in found] == ["1-2", "3-4"]
    for _, base, low, noise in found:
        assert float(low) == pytest.approx(float(base), rel=1e-2)
        assert noise != base
    assert "largest difference of a window from fp32" in printed


def test_merged_attention(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, "--width", 8, "--heads", 2, "--depths", 1)
    found = rows(run("merged_attention.py", *words, "--only", "attention", "--beam", 2))
    assert [row[0] for row in found] == ["self-attention, 1+1", "AAN, 1+1", "MAtt, 1+1"]


def test_decoding(run: Run, tiny_run: Any, tmp_path: Path) -> None:
    for language in ("en", "de"):
        lines = "\n".join(line for line in tiny_run.sources if line.strip())
        (tmp_path / f"lines.{language}").write_text(f"{lines}\n", encoding="utf-8")
    words = ("--input", tmp_path / "lines.en", "--references", tmp_path / "lines.de")
    printed = run("decoding.py", "--model", tiny_run.path, *words, "--precisions", "fp32", "int8")
    found = {row[0]: row for row in rows(printed)}
    assert next(iter(found)) == "nmtdeep, fp32"
    assert found["nmtdeep, fp32"][6] == "100.0%"
    assert "nmtdeep, int8" in found
    assert "BLEU: nrefs:1" in printed


def test_a_device_that_is_not_there_is_named(run: Run, tiny_run: Any) -> None:
    with pytest.raises(SystemExit, match="unknown device toaster"):
        run("depth.py", "--data", tiny_run.data.path, "--device", "toaster")
