"""The scripts that compare run from their options to their tables, on a tiny corpus."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmtdeep.checkpoint import Loaded

from .conftest import FOLDER, Load

ROOT = FOLDER.parent
RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
SHAPE = ("--shape", "8/12/2/1+1", "--tokens", "200")
Run = Callable[..., str]


class InProcess:
    """As `apart.Apart`, but in this process."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self.stack = ExitStack()
        _, self.turn = make(self.stack, *arguments)
        self.memory = 0
        self.turns: list[Any] = []

    def __call__(self) -> None:
        began, result = time.perf_counter(), self.turn()
        spent = SimpleNamespace(wall=time.perf_counter() - began, cpu=1.0)
        self.turns.append(SimpleNamespace(spent=spent, result=result))

    def close(self) -> None:
        self.stack.close()


@pytest.fixture
def run(load: Load, capsys: pytest.CaptureFixture[str]) -> Run:
    """`run("depth", ...)`: what the script printed."""

    def script(name: str, *words: object, **arguments: Any) -> str:
        line = [*map(str, words), "--repeats", "1", "--plain-malloc"]
        load(name).main(line, **arguments)
        return capsys.readouterr().out

    return script


def rows(printed: str) -> list[list[str]]:
    """Cells of the tables."""
    lines = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_training(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, *SHAPE, "--updates", 2, "--precision", "bf16")
    printed = run("training", *words, "--norm", "pre_norm", apart=InProcess)
    names = [
        "nmtdeep",
        "products alone",
        "naive, SDPA",
        "naive, tuned",
        "nn.Transformer",
        "best peer",
    ]
    assert [row[0] for row in rows(printed)] == names
    assert "of the time waiting for data" in printed
    assert float(re.findall(r"gradients equal to\s(\S+)", printed)[0]) < 1e-4


def test_depth(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, *SHAPE, "--depths", 1, 3, "--norms", "post_norm")
    plain = ["residual, 1", "residual, 3", "DLCL, 3", "sparse blocks, 3"]
    assert [row[0] for row in rows(run("depth", *words))] == [*plain, "residual, 3, recomputed"]


def test_merged_attention(run: Run, tiny_run: Any) -> None:
    words = ("--data", tiny_run.data.path, "--width", 8, "--heads", 2, "--depths", 1, "--beam", 2)
    table = rows(run("merged_attention", *words, "--only", "attention"))
    assert [row[0] for row in table] == ["self-attention, 1+1", "AAN, 1+1", "MAtt, 1+1"]


def test_decoding(run: Run, tiny_run: Any, tmp_path: Path) -> None:
    lines = "\n".join(line for line in tiny_run.sources if line.strip())
    for language in ("en", "de"):
        (tmp_path / f"lines.{language}").write_text(f"{lines}\n", encoding="utf-8")
    words = ("--input", tmp_path / "lines.en", "--references", tmp_path / "lines.de")
    words = ("--model", tiny_run.path, *words, "--precisions", "fp32", "int8")
    printed = run("decoding", *words, apart=InProcess)
    table = {row[0]: row for row in rows(printed)}
    assert next(iter(table)) == "nmtdeep, fp32"
    assert table["nmtdeep, fp32"][5] == "100.0%"
    assert "nmtdeep, int8" in table
    assert "BLEU: nrefs:1" in printed


def test_round_trip(load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lines.kab"
    path.write_text("".join(f"Sekcem azal  {number}.\n" for number in range(40)))
    load("round_trip").main(["kab", str(path)])
    row = next(line for line in capsys.readouterr().out.splitlines() if "kab" in line)
    lines, moses, exact, _, nfkc = re.findall(r"[\d.]+", row)
    # Neither Moses nor NFKC keeps two spaces.
    assert (lines, moses, exact, nfkc) == ("20", "0.0", "100.0", "0.0")


def test_ratios_are_formed_within_a_turn(load: Load) -> None:
    turns = load("turns")
    spent = {
        "ours": [turns.Spent(1.0, 1.0), turns.Spent(10.0, 1.0)],
        "one": [turns.Spent(3.0, 1.0), turns.Spent(20.0, 1.0)],
        "other": [turns.Spent(2.0, 4.0), turns.Spent(40.0, 5.0)],
    }
    all_turns = turns.Turns(spent)
    assert all_turns.ratios(["one", "other"], "ours") == [2.0, 2.0]
    assert all_turns.ratios(["other"], "ours", "cpu") == [4.0, 5.0]
    assert turns.spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"


def test_every_contender_begins_one_turn(load: Load) -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in "abc"}
    turns = load("turns").take_turns(runs, repeats=3)
    assert "".join(order) == "abcbcacab"
    assert {name: len(spent) for name, spent in turns.spent.items()} == dict.fromkeys("abc", 3)


def test_the_peak_is_that_of_the_work_alone(load: Load) -> None:
    size = 64 * 2**20

    def work() -> None:
        torch.ones(size // 4).add_(1)

    memory = load("memory")
    if not memory.CLEAR.exists():
        pytest.skip("only Linux can reset the peak of a process")
    torch.ones(4 * size // 4).add_(1)  # a higher peak before
    assert 0.9 * size < memory.peak_increase(work, torch.device("cpu")) < 1.5 * size


@pytest.mark.parametrize("attention", ["self-attention", "AAN", "MAtt"])
def test_every_translation_is_as_long_as_its_source(
    load: Load, attention: str, tmp_path: Path
) -> None:
    merged, contenders = load("merged_attention"), load("contenders")
    base = contenders.naive.Shape(8, 12, 2, 6, 6)
    variant = merged.attentions(base, [1])[0][f"{attention}, 1+1"]
    recipe = contenders.adapt(RECIPE, variant.shape, tokens=64, overrides=variant.overrides)
    model = contenders.build_ours(recipe, 24)
    sources = [[3, 4, 5, 1], [6, 1], [7, 8, 9, 10, 11, 1], [12, 13, 1]]
    with torch.no_grad():
        model.output.weight[1] *= 100  # without the hook, the end would always win
    pipeline: Any = SimpleNamespace(target=SimpleNamespace(vocabulary=SimpleNamespace(fillers=())))
    loaded = Loaded(tmp_path, recipe, pipeline=pipeline, model=model, state={})
    options = SimpleNamespace(beam=2, batch=2, device="cpu", precision="fp32")
    translator = merged.as_long_as_the_source(loaded, options, longest=6)
    for source, hypotheses in zip(sources, translator.search(sources), strict=True):
        tokens = hypotheses[0].tokens
        assert len(tokens) == len(source)
        assert tokens.index(1) == len(source) - 1
    assert merged.translate(translator, sources, 2) == sum(map(len, sources))


@pytest.mark.parametrize("sizes", ["QUICK", "CPU", "GPU"])
def test_run_calls_every_script_with_valid_options(load: Load, sizes: str) -> None:
    run = load("run")
    options = run.arguments(["--device", "cuda:1"])
    commands = run.measurements(
        options, getattr(run, sizes), Path("test"), Path("data"), Path("run")
    )
    names = []
    for script, *words in commands:
        name = Path(script).stem
        names.append(name)
        if name != "startup":
            assert load(name).arguments(words).device == "cuda:1"
    assert names == ["startup", "training", "depth", "decoding", "merged_attention"]
