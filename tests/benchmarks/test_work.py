"""Operations, bytes, ratios and memory that the benchmarks report, against counts by hand."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from nmtdeep.checkpoint import Loaded
from nmtdeep.model.transformer import Transformer

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
TYPES, WIDTH, INNER = 24, 8, 12
ENCODER, DECODER = 2, 1
ENCODER_WEIGHTS = 4 * WIDTH**2 + 2 * WIDTH * INNER  # of a layer
DECODER_WEIGHTS = 8 * WIDTH**2 + 2 * WIDTH * INNER
MEMORY_WEIGHTS = 2 * WIDTH**2  # keys and values of cross-attention, of the decoder's
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


@pytest.fixture
def model(load: Load) -> Transformer:
    return build(load)


def build(load: Load, *overrides: str) -> Transformer:
    contenders = load("contenders")
    shape = contenders.naive.Shape.parse(f"{WIDTH}/{INNER}/2/{ENCODER}+{DECODER}")
    return contenders.build_ours(
        contenders.adapt(RECIPE, shape, tokens=64, overrides=overrides), TYPES
    )


def test_products_count_every_weight_once(load: Load, model: Transformer) -> None:
    matrices = sum(value.numel() for value in model.parameters() if value.dim() == 2)
    found = load("work").products(model, source=1, target=1, predicted=1)
    assert sum(one.weights * one.rows for one in found) == matrices


def test_keys_and_values_of_the_memory_are_made_of_source_positions(
    load: Load, model: Transformer
) -> None:
    found = load("work").products(model, source=1, target=0, predicted=0)
    expected = ENCODER * ENCODER_WEIGHTS + DECODER * MEMORY_WEIGHTS
    assert sum(one.weights * one.rows for one in found) == expected


def test_merged_attention_makes_values_of_the_target_too(load: Load) -> None:
    model = build(load, "model.decoder.sublayers=[merged_attention, feed_forward]")
    found = load("work").products(model, source=0, target=1, predicted=0)
    expected = 3 * WIDTH**2 + 2 * WIDTH * INNER  # query, value and output; feed-forward
    assert sum(one.weights * one.rows for one in found) == DECODER * expected


def test_attention_of_training_is_counted_pair_by_pair(load: Load, model: Transformer) -> None:
    source, target = np.array([3, 5]), np.array([2, 4])
    seen = 0
    for s, t in zip(source, target, strict=True):
        seen += ENCODER * s * s + DECODER * (sum(range(1, t + 1)) + s * t)
    # q k^T and weights times v: two products of WIDTH numbers for each pair of positions.
    assert load("work").attention_operations(model, source, target) == 2 * 2 * WIDTH * seen


def test_the_cost_of_training_adds_both(load: Load, model: Transformer) -> None:
    work = load("work")
    turn = work.Work(
        corpus=None, plan=[[0], [1]], pairs=np.array([[3, 5], [2, 4]]), padded_tokens=18
    )
    weights = 8 * (ENCODER * ENCODER_WEIGHTS + DECODER * MEMORY_WEIGHTS)
    weights += 6 * (DECODER * (DECODER_WEIGHTS - MEMORY_WEIGHTS) + TYPES * WIDTH)
    attention = work.attention_operations(model, *turn.pairs)
    found = work.training_cost(model, turn)
    assert found.operations == 6 * weights + 3 * attention
    assert found.bytes == 2 * 36 * sum(value.numel() for value in model.parameters())
    assert turn.padding == pytest.approx(4 / 18)


def test_the_cost_of_decoding_is_that_of_each_step(load: Load, model: Transformer) -> None:
    source, target, beam = [3, 5, 2], [2, 4, 1], 2
    operations = numbers = 0
    for s, t in zip(source, target, strict=True):
        operations += 2 * s * (ENCODER * ENCODER_WEIGHTS + DECODER * MEMORY_WEIGHTS)
        operations += 4 * ENCODER * WIDTH * s * s
        for step in range(1, t + 1):
            stepped = DECODER * (DECODER_WEIGHTS - MEMORY_WEIGHTS) + TYPES * WIDTH
            operations += beam * (2 * stepped + 4 * DECODER * WIDTH * (step + s))
            numbers += 2 * DECODER * WIDTH * (beam * step + s)
    # Batches of two, longest first: 4 steps for the first two sentences, 1 for the last.
    numbers += (4 + 1) * (DECODER * (DECODER_WEIGHTS - MEMORY_WEIGHTS) + TYPES * WIDTH)
    found = load("work").decoding_cost(model, source, target, beam=beam, batch=2)
    assert (found.operations, found.bytes) == (operations, 4 * numbers)


def test_an_average_has_no_keys_and_values_of_its_own(load: Load) -> None:
    model = build(load, "model.decoder.sublayers=[merged_attention, feed_forward]")
    cost = load("work").decoding_cost
    short, long = (cost(model, [1], [length], beam=1, batch=1).bytes for length in (10, 20))
    assert long == 2 * short


def test_the_slower_of_arithmetic_and_memory_is_the_floor(load: Load) -> None:
    floor, work = load("floor"), load("work")
    rates = floor.Rates(operations=100.0, bytes=10.0)
    assert rates.seconds(work.Cost(operations=400, bytes=20)) == 4
    assert rates.seconds(work.Cost(operations=400, bytes=80)) == 8


def test_ratios_are_formed_within_a_turn(load: Load) -> None:
    turns = load("turns")
    spent = {
        "ours": [turns.Spent(1.0, 1.0), turns.Spent(10.0, 1.0)],
        "one": [turns.Spent(3.0, 1.0), turns.Spent(20.0, 1.0)],
        "other": [turns.Spent(2.0, 4.0), turns.Spent(40.0, 5.0)],
    }
    found = turns.Turns(spent)
    assert found.ratios(["one", "other"], "ours") == [2.0, 2.0]
    assert found.ratios(["other"], "ours", "cpu") == [4.0, 5.0]
    assert turns.spread([3.0, 1.0, 2.0]) == "2.00 (1.00-3.00)"


def test_every_contender_has_its_turn_and_each_begins_once(load: Load) -> None:
    order: list[str] = []
    runs = {name: (lambda name=name: order.append(name)) for name in "abc"}
    found = load("turns").take_turns(runs, repeats=3)
    assert "".join(order) == "abcbcacab"
    assert {name: len(spent) for name, spent in found.spent.items()} == dict.fromkeys("abc", 3)


def test_the_peak_is_that_of_the_work_alone(load: Load) -> None:
    size = 64 * 2**20

    def work() -> None:
        torch.ones(size // 4).add_(1)

    memory = load("memory")
    if not memory.CLEAR.exists():
        pytest.skip("only Linux forgets a peak")
    torch.ones(4 * size // 4).add_(1)  # a higher peak before
    found = memory.peak_increase(work, torch.device("cpu"))
    assert 0.9 * size < found < 1.5 * size


def test_windows_are_means_and_leave_out_the_rest(load: Load) -> None:
    curves = load("curves")
    assert curves.windows([1.0, 3.0, 5.0, 7.0, 100.0], 2) == [2.0, 6.0]
    assert curves.largest([1.0, 2.0], [1.5, 1.8]) == pytest.approx(0.5)


@pytest.mark.parametrize("attention", ["self-attention", "AAN", "MAtt"])
def test_every_translation_is_as_long_as_its_source(
    load: Load, attention: str, tmp_path: Path
) -> None:
    merged, contenders = load("merged_attention"), load("contenders")
    base = contenders.naive.Shape(8, 12, 2, 6, 6)
    variant = merged.attentions(base, [1])[0][f"{attention}, 1+1"]
    recipe = contenders.adapt(RECIPE, variant.shape, tokens=64, overrides=variant.overrides)
    model = contenders.build_ours(recipe, TYPES)
    sources = [[3, 4, 5, 1], [6, 1], [7, 8, 9, 10, 11, 1], [12, 13, 1]]
    with torch.no_grad():
        model.output.weight[1] *= 100  # where it could, the end would win
    loaded = Loaded(tmp_path, recipe, pipeline=None, model=model, state={})
    options = argparse.Namespace(beam=2, batch=2, device="cpu", precision="fp32")
    translator = merged.as_long_as_the_source(loaded, options, longest=6)
    for source, hypotheses in zip(sources, translator.search(sources), strict=True):
        tokens = hypotheses[0].tokens
        assert len(tokens) == len(source)
        assert tokens.index(1) == len(source) - 1
    assert merged.translate(translator, sources, 2) == sum(map(len, sources))


def test_every_comparison_builds(load: Load) -> None:
    merged, contenders = load("merged_attention"), load("contenders")
    base = contenders.naive.Shape(8, 32, 2, 6, 6)
    names = set()
    for comparison in merged.COMPARISONS.values():
        for variants in comparison(base, [6, 12, 20]):
            names |= set(variants)
            for variant in variants.values():
                contenders.adapt(RECIPE, variant.shape, tokens=64, overrides=variant.overrides)
    assert len(names) == 9 + 2 + 3


def test_a_corpus_is_found_by_what_its_files_begin_with(load: Load, tmp_path: Path) -> None:
    run = load("run")
    for name in ("train.de", "train.en", "val.de", "val.en", "test_2016.de", "test_2016.en"):
        (tmp_path / name).touch()
    found = run.find_corpus(tmp_path, "de")
    assert [path.name for path in found] == ["train", "val", "test_2016"]
    shipped = run.find_corpus(ROOT / "nmtdeep" / "demo" / "corpus", "en")
    assert [path.name for path in shipped] == ["train", "dev", "test"]
    with pytest.raises(SystemExit, match=r"no train\*.fr"):
        run.find_corpus(tmp_path, "fr")


@pytest.mark.parametrize("words", [[], ["--quick"], ["--quick", "--device", "cuda"]])
def test_every_command_of_a_run_is_understood(
    load: Load, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load("run")
    options = run.arguments(words)
    corpus = run.find_corpus(ROOT / "nmtdeep" / "demo" / "corpus", "en")
    scripts = []
    for name, *rest in run.measurements(options, corpus, Path("data"), Path("run")):
        scripts.append(name)
        assert (ROOT / "benchmarks" / name).exists()
        if name == "startup.py":
            continue
        monkeypatch.setattr("sys.argv", [name, *rest])
        understood = by_path(ROOT / "benchmarks" / name).arguments()
        assert understood.device == options.device
    assert len(scripts) == len(set(scripts)) == 6


def by_path(path: Path) -> ModuleType:
    """A script whose name is also that of a test package."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
