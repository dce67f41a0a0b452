"""The examples of docs/extending.md: one module, all slots at once, and what the page says."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from installed import installed
from torch.testing import assert_close

from nmtdeep import checkpoint, testing
from nmtdeep.config.load import load_recipe
from nmtdeep.config.variant import find_variant
from nmtdeep.model.build import build, initialize
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob
from nmtdeep.variants import InitializerVariant, ScheduleVariant

CODE = (Path(__file__).parents[1] / "docs/examples/every_slot.py").read_text(encoding="utf-8")
NAMES = {
    name: each
    for each, name in re.findall(
        r'class (\w+)\(variants\.\w+Variant\):.*?Literal\["(mine\.\w+)"\]', CODE, re.DOTALL
    )
}
SIDES = ("encoder", "decoder")
ALL = [
    "model.encoder.sublayers=[self_attention, mine.maps]",
    "model.decoder.sublayers=[self_attention, cross_attention, mine.maps]",
    "model.positions=mine.near",
    "model.initializer=mine.orthogonal",
    "training.optimizer=mine.momentum",
]
COSINE = ["training.schedule={type: mine.cosine, warmup_updates: 2, peak: 0.1}"]
GAINED = [f"model.{side}.residual=mine.gained" for side in SIDES]
SCALED = [f"model.{side}.combination=mine.scaled" for side in SIDES]


@pytest.fixture(autouse=True)
def mine(tmp_path, monkeypatch):
    yield from installed("mine", CODE, NAMES, tmp_path, monkeypatch)


def section(name: str, base: type) -> Any:
    return find_variant(name, base)()  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("check", testing.CHECKS)
@pytest.mark.parametrize("more", [GAINED, SCALED], ids=["residual", "combination"])
def test_the_examples_keep_every_promise(check, more, tmp_path):
    if more is SCALED and check not in (
        testing.stepwise_equals_parallel,
        testing.grown_model_is_whole,
        testing.parameters_are_trained,
    ):
        pytest.skip("nothing that the other model does not test")
    check([*ALL, *more], tmp_path)


def test_matrices_are_orthogonal_by_block_and_follow_the_seed():
    recipe = load_recipe("deep-small", [*testing.TINY, "model.initializer=mine.orthogonal"])
    models = []
    for seed in (1, 1, 2):
        models.append(build(recipe.model, source_types=24, target_types=24))
        initialize(models[-1], recipe.model, seed=seed)
    layer = models[0].encoder.layers[0].sublayers
    attention, maps = layer[0].sublayer, layer[1].sublayer
    value, inner, outer = attention.qkv.weight[32:], maps.inner.weight, maps.outer.weight
    for weight in (value, attention.output.weight, inner.T, outer):
        assert_close(weight @ weight.T, torch.eye(16), atol=1e-5, rtol=0)
    # Of 256 numbers N(0, 1/16) the root of the mean square is 1/4, give or take a tenth of it.
    for weight in (attention.qkv.weight[:16], attention.qkv.weight[16:32]):
        assert float(weight.detach().square().mean().sqrt()) == pytest.approx(0.25, rel=0.2)
    first, again, other = (checkpoint.weights(model) for model in models)
    assert all(first[name].equal(again[name]) for name in first)
    assert not first["encoder.layers.0.sublayers.0.sublayer.output.weight"].equal(
        other["encoder.layers.0.sublayers.0.sublayer.output.weight"]
    )


def test_an_embedding_table_may_be_drawn_too():
    rules = section("mine.orthogonal", InitializerVariant).rules(None)
    assert rules.tables == "normal"
    recipe = load_recipe("deep-small", testing.TINY)
    model = build(recipe.model, source_types=24, target_types=24)
    from nmtdeep.model.initialization import draw_values

    rules = rules._replace(table=lambda weight: torch.nn.init.orthogonal_)
    draw_values(model, rules, seed=1, encoder=rules, decoder=rules)
    table = model.output.weight[1:]  # the padding row is zero
    assert float(table.detach().norm()) == pytest.approx(math.sqrt(16), rel=0.05)


def test_a_schedule_without_an_end_stays_at_the_peak():
    schedule = section("mine.cosine", ScheduleVariant).model_copy(update={"warmup_updates": 4})
    rates = [schedule.learning_rate(update, None, None) for update in (1, 2, 4, 100)]
    assert rates == [0.25e-3, 0.5e-3, 1e-3, 1e-3]
    rates = [schedule.learning_rate(update, None, 12) for update in (4, 8, 12, 13)]
    assert rates == pytest.approx([1e-3, 0.5e-3, 0, 0])


def test_all_examples_train_with_an_end_that_is_not_known(tmp_path):
    unknown = ["training.max_updates=auto", "training.max_minutes=0.05"]
    recipe = load_recipe("deep-small", [*testing.TINY, *ALL, *COSINE, *SCALED, *unknown])
    testing.small_data(recipe, tmp_path)
    job = TrainingJob(recipe, tmp_path / "data", tmp_path / "run", "cpu")
    assert train(job, quiet=True) == 0
