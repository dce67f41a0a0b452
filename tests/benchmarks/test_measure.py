"""All measurements on a GPU, pretended on the CPU: from raw text to the table."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from .conftest import FOLDER, Load

DEMO = FOLDER.parent / "nmtdeep" / "tools" / "demo" / "corpus"
SPLITS = {"train": (0, 150), "val": (150, 180), "test": (180, 200)}
Run = Callable[..., str]


@pytest.fixture(scope="module")
def program(load: Load) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER / "gpu"))
        return load("gpu/measure")


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
    """`run("--only", "works")`: what the command printed."""
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent))

    def command(*words: object) -> str:
        place = ("--kit", kit, "--out", tmp_path, "--pretend")
        program.main([str(word) for word in (*words, *place)])
        return capsys.readouterr().out

    return command


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(row) for row in (out / "rows.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_all_parts_are_rows_of_one_table(
    run: Run, program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert 300 < len(found["plain 30+6"]["error"]) < 350
    table = (tmp_path / "table.md").read_text("utf-8")
    assert printed.endswith(table) and len(table) < 8000
    lines = table.splitlines()
    parts = zip(lines[2:], found, strict=False)
    assert all(line.startswith(f"| {name} | ") for line, name in parts)
    assert {line.count("|") for line in lines} == {5}
    assert "| where: base 6+6 | " in table and " ms products" in table

    monkeypatch.setitem(program.PARTS, "plain 30+6", part)
    assert "failed" not in run()
    assert [row["part"] for row in rows(tmp_path)] == [*found, "plain 30+6"]
    found = {row["part"]: row for row in rows(tmp_path)}
    figures = {name: row["figures"] for name, row in found.items()}
    # The CPU that prepared the answers is this one.
    assert not any(figures["fixed model"].values())
    assert figures["tests"]["tests coll"] > 100
    base = figures["base 6+6"]
    assert 0 < base["s of imports and context"] < base["s to first"]
    where = base["where"]
    families = [value for name, value in where.items() if re.match("ms (?!of)", name)]
    assert where["ms of kernels"] == pytest.approx(sum(families), abs=0.05)


def test_a_part_has_a_process_and_a_limit(run: Run, tmp_path: Path) -> None:
    printed = run("--only", "fixed model", "--minutes", 11 / 60)
    (row,) = rows(tmp_path)
    assert row["part"] == "fixed model"
    if "error" in row:  # a machine that is slow
        assert row["error"].startswith("failed: not done after ")
    assert "| versions | not measured yet |  |  |" in printed
    assert "no time is left" in run("--only", "versions", "--minutes", 0)
    assert len(rows(tmp_path)) == 1


def test_goals_are_compared(program: ModuleType) -> None:
    figures = {"target tokens/s": 350_000.0, "GB reserved": 20.0, "replayed": 0.5}
    goals = {"target tokens/s": 700_000, "GB reserved": 10, "s to first": 12}
    wanted = "700,000 target tokens/s, at most 10 GB reserved"
    assert program.compared(figures, goals) == (wanted, "0.50, 0.50")
    assert program.compared({"times the ms": 1.4}, {"times the ms": 1.12})[1] == "0.80"
    assert program.compared({"sentences/s": 8.0}, {"sentences/s": 4})[1] == "2.00"


def test_the_table_has_ratios_and_is_short(program: ModuleType, tmp_path: Path) -> None:
    speeds = {"base 6+6": 600.0, "MarianMT": 300.0}
    made = [{"part": name, "figures": {program.SPEED: each}} for name, each in speeds.items()]
    made += [{"part": name, "error": "y" * 400} for name in program.PARTS if name not in speeds]
    text = "".join(json.dumps(row) + "\n" for row in made)
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    table = program.table(program.Place(tmp_path, tmp_path, True))
    ratio = (
        "| base 6+6 / MarianMT | 2 times the target tokens/s | 3 times the target tokens/s | 0.67 |"
    )
    assert ratio in table.splitlines()
    assert len(table) < 8000 and all(name in table for name in program.PARTS)


def test_kernels_have_families(program: ModuleType) -> None:
    family = program.parts.by_family.__globals__["family"]
    expected = {
        "void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd": "attention",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention": "attention",
        "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NTN": "products",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float": "products",
        "void gemmk1_kernel<int, float, 256, 5": "sums of DLCL",
        "triton_red_fused__to_copy_arange_eq_exp_log_prepare_softmax_online_sub_sum": "loss",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<": "optimizer",
        "Memcpy DtoD (Device -> Device)": "copies",
        "triton_poi_fused__to_copy_6": "copies",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel": "copies",
        "triton_per_fused__to_copy_add_native_dropout_native_layer_norm_view_5": (
            "norms, dropout, residuals"
        ),
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel": (
            "norms, dropout, residuals"
        ),
        "_unknown": "rest",
    }
    assert {name: family(name) for name in expected} == expected


def test_a_model_that_computes_something_else_is_an_error(program: ModuleType) -> None:
    one: dict[str, Any] = {"loss": 2.0, "gradient norm": 1.0, "translations": ["a", "b"]}
    assert set(program.parts.differences(one, one).values()) == {0.0}
    near = program.parts.differences(one | {"loss": 2.00001}, one)
    assert near["off in loss"] == pytest.approx(5e-6)
    for changed in ({"loss": 2.1}, {"translations": ["a", "c"]}, {"gradient norm": 1.01}):
        with pytest.raises(AssertionError):
            program.parts.differences(one, one | changed)


def test_the_page_has_every_part(program: ModuleType) -> None:
    page = (FOLDER.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    assert [name for name in program.PARTS if f"\n| {name} | " not in page] == []


def test_graphs_say_what_they_replayed(program: ModuleType) -> None:
    def of(**made: Any) -> dict[str, Any]:
        return program.parts.graphs(SimpleNamespace(step=SimpleNamespace(**made)))

    assert of() == {}  # a training without them
    made = SimpleNamespace(calls=4, replays=3, reason="")
    assert of(graphs=made) == {"replayed": 0.75, "calls": 4}
    made = SimpleNamespace(calls=0, replays=0, reason="LayerDrop draws on the host")
    assert of(graphs=made)["eager:"] == "LayerDrop draws on the host"
