"""Variants of another package train as those of this one: slots that every_slot.py leaves out."""

import re

import pytest
from installed import installed

from nmtdeep import checkpoint, testing
from nmtdeep.config.load import load_recipe
from nmtdeep.tools.export import to_ctranslate2, to_huggingface
from nmtdeep.training.loop import train
from nmtdeep.training.setup import TrainingJob

CODE = """
from typing import Literal
from nmtdeep import variants
from nmtdeep.model.growth import layer_map
from nmtdeep.model.layers.attention import CrossAttention
from nmtdeep.model.layers.bridge import TopLayer
from nmtdeep.training.loss import inter_similarity

class Reading(variants.SublayerVariant):
    type: Literal["outside.reading"] = "outside.reading"
    reads_source = True
    def build(self, model, stack):
        return CrossAttention(model.width, stack.heads, dropout=model.dropout.attention)

class Top(variants.BridgeVariant):
    type: Literal["outside.top"] = "outside.top"
    def build(self, model): return TopLayer(model.decoder.depth)

class Grow(variants.GrowthVariant):
    type: Literal["outside.grow"] = "outside.grow"
    def layer_map(self, old, new): return layer_map("interpolate", old, new)

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
    "model.decoder.sublayers=[self_attention, outside.reading, feed_forward]",
    "model.bridge=outside.top",
    "training.growth.strategy=outside.grow",
    "training.regularizer=outside.regularizer",
]
OURS = ["training.growth.strategy=interpolate", "training.regularizer=inter_similarity"]


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch):
    yield from installed("outside", CODE, NAMES, tmp_path / "site", monkeypatch)


@pytest.mark.slow
def test_a_model_of_variants_from_outside_trains_and_grows_as_ours_does(tmp_path):
    testing.small_data(load_recipe("deep-small", testing.TINY), tmp_path)
    trained = {}
    for name, overrides in (("outside", OUTSIDE), ("ours", OURS)):
        recipe = load_recipe("deep-small", [*testing.TINY, *overrides, STAGES])
        job = TrainingJob(recipe, tmp_path / "data", tmp_path / name, "cpu")
        train(job, quiet=True)
        trained[name] = checkpoint.weights(
            checkpoint.load_model(tmp_path / name / "checkpoint_6").model
        )
    assert trained["outside"].keys() == trained["ours"].keys()
    assert all(trained["ours"][name].equal(trained["outside"][name]) for name in trained["ours"])


@pytest.mark.parametrize("override", OUTSIDE[:2])
def test_no_variant_is_exported_as_if_it_was_ours(override):
    model = load_recipe("deep-small", [override]).model
    for unsupported in (to_ctranslate2.unsupported, to_huggingface.unsupported):
        assert any(
            "is a variant of another package (outside 1)" in p.what for p in unsupported(model)
        )
