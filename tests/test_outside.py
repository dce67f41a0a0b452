"""A package with a variant of every slot: it trains as the variants of this package do."""

import re

import pytest
from installed import installed

from nmtdeep import checkpoint, testing
from nmtdeep.config.load import load_recipe
from nmtdeep.tools.export import to_ctranslate2, to_huggingface
from nmtdeep.training.loop import train

CODE = """
from typing import Literal
import torch
from nmtdeep import variants
from nmtdeep.model import initialization
from nmtdeep.model.build_layers import layer_norm
from nmtdeep.model.growth import layer_map
from nmtdeep.model.layers.attention import CrossAttention
from nmtdeep.model.layers.bridge import TopLayer
from nmtdeep.model.layers.combination import PlainStack
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.positions import Sinusoidal
from nmtdeep.model.layers.residual import PreNorm
from nmtdeep.training.loss import inter_similarity
from nmtdeep.training.optimizer import ADAM_MOMENTS
from nmtdeep.training.schedule import inverse_square_root

class Maps(variants.SublayerVariant):
    type: Literal["outside.maps"] = "outside.maps"
    def build(self, model, stack):
        return FeedForward(model.width, stack.feed_forward)

class Reading(variants.SublayerVariant):
    type: Literal["outside.reading"] = "outside.reading"
    reads_source = True
    def build(self, model, stack):
        return CrossAttention(model.width, stack.heads, dropout=model.dropout.attention)

class Wrapper(variants.ResidualVariant):
    type: Literal["outside.wrapper"] = "outside.wrapper"
    norms = "before"
    def build(self, sublayer, model, stack):
        return PreNorm(sublayer, layer_norm(model), dropout=model.dropout.residual)

class Plain(variants.CombinationVariant):
    type: Literal["outside.plain"] = "outside.plain"
    def build(self, model, stack): return PlainStack()

class Top(variants.BridgeVariant):
    type: Literal["outside.top"] = "outside.top"
    def build(self, model): return TopLayer(model.decoder.depth)

class Waves(variants.PositionsVariant):
    type: Literal["outside.waves"] = "outside.waves"
    def build(self, model, stack): return Sinusoidal(model.width)

class Start(variants.InitializerVariant):
    type: Literal["outside.start"] = "outside.start"
    def rules(self, model): return initialization.lipschitz()

class Grow(variants.GrowthVariant):
    type: Literal["outside.grow"] = "outside.grow"
    def layer_map(self, old, new): return layer_map("interpolate", old, new)

class Optimizer(variants.OptimizerVariant):
    type: Literal["outside.optimizer"] = "outside.optimizer"
    def build(self, transformer):
        group = {"params": list(transformer.parameters()), "moments": ADAM_MOMENTS}
        return torch.optim.AdamW([group], betas=(0.9, 0.98), eps=1e-8, weight_decay=0, fused=True)

class Schedule(variants.ScheduleVariant):
    type: Literal["outside.schedule"] = "outside.schedule"
    def learning_rate(self, update, model, last):
        rate = {"peak": 1e-3, "warmup_init": 1e-7}
        return inverse_square_root(update, warmup_updates=self.warmup_updates, **rate)

class Regularizer(variants.RegularizerVariant):
    type: Literal["outside.regularizer"] = "outside.regularizer"
    def penalty(self, outputs, mask, target_tokens):
        return sum((1 - inter_similarity(y, mask)) * target_tokens for y in outputs[1:]).sum()
"""
NAMES = {name: name.partition(".")[2].capitalize() for name in re.findall(r'= "(outside.*)"', CODE)}
STAGES = (
    "training.stages=[{encoder: 2, decoder: 2, updates: 3}, {encoder: 3, decoder: 2, updates: 3}]"
)
OUTSIDE = [
    "model.encoder.sublayers=[self_attention, outside.maps]",
    "model.decoder.sublayers=[self_attention, outside.reading, outside.maps]",
    *(f"model.{side}.residual=outside.wrapper" for side in ("encoder", "decoder")),
    *(f"model.{side}.combination=outside.plain" for side in ("encoder", "decoder")),
    "model.bridge=outside.top",
    "model.positions=outside.waves",
    "model.initializer=outside.start",
    "training.growth.strategy=outside.grow",
    "training.optimizer=outside.optimizer",
    "training.schedule={type: outside.schedule, warmup_updates: 4}",
    "training.regularizer=outside.regularizer",
]
OURS = [
    "model.initializer=lipschitz",
    "training.growth.strategy=interpolate",
    "training.optimizer=adam",
    "training.regularizer=inter_similarity",
]


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    yield from installed("outside", CODE, NAMES, tmp_path / "site", monkeypatch)


@pytest.mark.slow
def test_a_model_of_variants_from_outside_trains_and_grows_as_ours_does(tmp_path):
    testing.small_data(load_recipe("deep-small", testing.TINY), tmp_path)
    trained = {}
    for name, overrides in (("outside", OUTSIDE), ("ours", OURS)):
        recipe = load_recipe("deep-small", [*testing.TINY, *overrides, STAGES])
        train(recipe, data=tmp_path / "data", out=tmp_path / name, device="cpu", quiet=True)
        trained[name] = checkpoint.weights(checkpoint.load(tmp_path / name / "checkpoint_6").model)
    assert trained["outside"].keys() == trained["ours"].keys()
    assert all(trained["ours"][name].equal(trained["outside"][name]) for name in trained["ours"])


@pytest.mark.parametrize("override", OUTSIDE[:9])
def test_no_variant_is_exported_as_if_it_was_ours(override):
    model = load_recipe("deep-small", [override]).model
    for unsupported in (to_ctranslate2.unsupported, to_huggingface.unsupported):
        assert any(
            "is a variant of another package (outside 1)" in p.what for p in unsupported(model)
        )
