"""The pure parts of the trainings in miniature: recipes, the unigram level, tables."""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from nmtdeep.model.build import build

ROOT = Path(__file__).parents[2]
DEFAULTS = ["--data", "data", "--out", "out", "--updates", "40"]
METHODS = [
    "glorot-normal",
    "lipschitz-normal",
    "glorot-small",
    "lipschitz-small",
    "ds-init-0.25",
    "ds-init-0.5",
    "pre-norm",
    "dlcl-post",
    "dlcl-pre",
    "admin",
    "deep-norm",
    "rezero",
    "t-fixup",
    "v1-glorot-small",
    "v1-lipschitz-small",
    "v1-lipschitz-normal",
]
GROWN = ["copy-restart", "copy", "random-restart", "random"]
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def record(method: str, depth: int, perplexity: float | None, **more: Any) -> dict[str, Any]:
    return {
        "method": method,
        "depth": depth,
        "seed": 1,
        "perplexity": perplexity,
        "unigram_perplexity": 100.0,
        "diverged": "" if perplexity is not None else "training diverged at update 3",
        "settings": {"updates": 40},
        "date": "2026-11-21",
        "commit": "abc",
        "torch": "2",
        "python": "3",
        **more,
    }


def test_the_unigram_perplexity_equals_a_count_by_hand(load: Load) -> None:
    # Of 6 training tokens 3 are type 1, 2 type 2, 1 type 3; types 0 and 4 never occur. V = 5.
    train, valid = np.array([1, 2, 1, 3, 1, 2], np.uint16), np.array([1, 2, 4], np.uint16)
    found = load("miniature").unigram_perplexity(train, valid, types=5)
    by_hand = (4 / 11) * (3 / 11) * (1 / 11)
    assert math.isclose(found, by_hand ** (-1 / 3))


def test_every_method_is_tested(load: Load) -> None:
    convergence, growth = load("convergence"), load("shallow_to_deep")
    assert list(convergence.METHODS) == METHODS
    assert ["scratch", *GROWN] == growth.METHODS


@pytest.mark.parametrize("method", METHODS)
def test_the_recipe_of_a_method_loads_and_builds(load: Load, method: str) -> None:
    convergence = load("convergence")
    options = convergence.arguments([*DEFAULTS, "--width", "32", "text.bpe.merges=8000"])
    recipe = convergence.method_recipe(options, method, depth=12, seed=3)
    assert recipe.text.bpe.merges == 8000
    assert (recipe.training.seed, recipe.training.max_updates) == (3, 40)
    assert recipe.training.log_every == 1, "the first gradient norm and the time need every update"
    with torch.device("meta"):
        model = build(recipe.model, source_types=50, target_types=50)
    assert len(model.encoder.layers) == len(model.decoder.layers) == 12
    assert model.output.weight.shape == (50, 32)


def test_methods_differ_in_residual_combination_initializer_and_biases_only(load: Load) -> None:
    convergence = load("convergence")
    options = convergence.arguments(DEFAULTS)
    seen = set()
    for method in METHODS:
        recipe = convergence.method_recipe(options, method, depth=6, seed=1).model_dump()
        model = recipe["model"]
        slots = [model.pop("initializer"), model.pop("biases")]
        for side in ("encoder", "decoder"):
            slots += [model[side].pop("residual"), model[side].pop("combination")]
        seen.add((json.dumps(slots), json.dumps(recipe)))
    assert len({slots for slots, _ in seen}) == len(METHODS)
    assert len({rest for _, rest in seen}) == 1


def test_pairs_of_glorot_and_lipschitz_differ_in_what_their_names_say(load: Load) -> None:
    convergence = load("convergence")
    options = convergence.arguments(DEFAULTS)

    def model(method: str) -> dict[str, Any]:
        return convergence.method_recipe(options, method, depth=6, seed=1).model.model_dump()

    def start(type_: str, embeddings: str) -> set[tuple[str, str]]:
        return {("type", type_), ("embeddings", embeddings)}

    starts = {
        "glorot-normal": start("glorot", "normal"),
        "lipschitz-normal": start("lipschitz", "normal"),
        "glorot-small": start("glorot", "glorot"),
        "lipschitz-small": start("lipschitz", "lipschitz"),
    }
    for method, expected in starts.items():
        found = model(method)
        assert expected <= set(found.pop("initializer").items()), method
        plain = model("glorot-normal")
        del plain["initializer"]
        assert found == plain, method
    for method in ("v1-glorot-small", "v1-lipschitz-small", "v1-lipschitz-normal"):
        found = model(method)
        assert starts[method.removeprefix("v1-")] <= set(found["initializer"].items())
        assert found["biases"] == "inner"
        assert found["encoder"]["residual"]["type"] == "normalized"


@pytest.mark.parametrize("method", GROWN)
def test_the_recipe_of_a_growth_loads_and_each_stage_builds(load: Load, method: str) -> None:
    growth = load("shallow_to_deep")
    options = growth.arguments([*DEFAULTS, "--sparse-blocks", "--relative", "--decoder", "2"])
    recipe = growth.method_recipe(options, method, seed=1)
    strategy = "copy_top_group" if method.startswith("copy") else "random"
    assert recipe.training.growth.strategy == strategy
    assert recipe.training.growth.restart_lr == method.endswith("restart")
    assert [stage.updates for stage in recipe.training.stages] == [10, 10, 10, None]
    for number, depth in enumerate((6, 12, 18, 24)):
        with torch.device("meta"):
            model = build(recipe.at_stage(number).model, source_types=50, target_types=50)
        assert (len(model.encoder.layers), len(model.decoder.layers)) == (depth, 2)
    scratch = growth.method_recipe(options, "scratch", seed=1)
    assert scratch.model == recipe.model
    assert not scratch.training.stages


def test_stages_must_leave_updates_for_the_last(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        load("shallow_to_deep").arguments([*DEFAULTS, "--stage-updates", "14"])
    assert "last stage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("perplexity", "failed"),
    [(89.9, False), (90.0, True), (120.0, True), (math.nan, True), (None, True)],
)
def test_what_fails(load: Load, perplexity: float | None, failed: bool) -> None:
    assert load("miniature").fails(record("glorot-normal", 6, perplexity)) is failed


def test_the_table_has_means_of_seeds_and_marks_failures(load: Load) -> None:
    records = [
        record("pre-norm", 24, 10.0),
        record("pre-norm", 24, 20.0, seed=2),
        record("glorot-normal", 6, 30.0),
        record("glorot-normal", 6, 95.0, seed=2),
        record("glorot-normal", 24, 99.0),
        record("glorot-normal", 24, None, seed=2),
    ]
    assert load("convergence").rows(records) == [
        ["method", "6+6", "24+24"],
        ["glorot-normal", "30.00 (1 of 2 fail)", "fails"],
        ["pre-norm", "", "15.00"],
    ]


def test_the_table_of_growth_compares_time_within_a_seed(load: Load) -> None:
    records = [
        record("copy-restart", 24, 10.0, update_seconds=50.0, cpu_seconds=60.0),
        record("copy-restart", 24, 10.0, update_seconds=150.0, cpu_seconds=None, seed=2),
        record("scratch", 24, 12.0, update_seconds=100.0, cpu_seconds=80.0),
        record("scratch", 24, 12.0, update_seconds=200.0, cpu_seconds=90.0, seed=2),
        record("random", 24, None, update_seconds=1.0, cpu_seconds=1.0),
    ]
    assert load("shallow_to_deep").rows(records) == [
        ["method", "perplexity", "seconds", "saved", "CPU seconds", "saved"],
        ["scratch", "12.00", "150", "", "85", ""],
        ["copy-restart", "10.00", "100", "37.5%", "60", "25.0%"],
        ["random", "fails", "", "", "", ""],
    ]


def test_results_of_other_settings_stand_in_a_table_of_their_own(
    load: Load, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials, miniature = load("trials"), load("miniature")
    trials.append(tmp_path, record("pre-norm", 6, 10.0))
    trials.append(tmp_path, record("pre-norm", 6, 99.0, settings={"updates": 5}))
    assert [len(group) for group in miniature.groups(tmp_path)] == [1, 1]
    miniature.show(tmp_path, load("convergence").rows)
    shown = capsys.readouterr().out
    assert "| pre-norm | 10.00 |" in shown
    assert "| pre-norm | fails |" in shown


def test_a_result_counts_the_time_of_updates_and_keeps_the_curve(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials, convergence = load("trials"), load("convergence")
    recipe = convergence.method_recipe(convergence.arguments(DEFAULTS), "pre-norm", depth=6, seed=1)
    monkeypatch.setattr(trials.Trial, "name", "run")
    trial = trials.Trial("pre-norm", recipe, {"unigram_perplexity": 9.0}, tmp_path, tmp_path)
    update = {"kind": "train", "nll": 5.0, "updates_per_second": 4.0}
    records = [
        update | {"update": 1, "gradient_norm": 7.0, "seconds": 0.5},
        {"kind": "validation", "update": 1, "valid_nll": 2.0, "valid_ppl": 8.0},
        update | {"update": 2, "gradient_norm": 3.0, "seconds": 1.5},
        {"kind": "validation", "update": 2, "valid_nll": 1.0, "valid_ppl": 3.0},
    ]
    found = trials.result(trial, records, "")
    assert (found["perplexity"], found["nll"], found["diverged"]) == (3.0, 1.0, "")
    assert (found["initial_gradient_norm"], found["seconds"]) == (7.0, 1.5)
    assert found["update_seconds"] == 0.5
    assert [one["perplexity"] for one in found["curve"]] == [8.0, 3.0]
    assert trials.result(trial, records, "it diverged")["perplexity"] is None
    assert trials.result(trial, [], "it diverged")["updates_done"] == 0
