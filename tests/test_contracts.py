"""What variants of other packages may do, and how the rest is refused."""

from typing import Any

import numpy as np
import pytest
import torch
from installed import installed
from torch.testing import assert_close

from nmtdeep import testing
from nmtdeep.config import slots
from nmtdeep.config.load import load_recipe
from nmtdeep.config.training import Training
from nmtdeep.config.variant import tag_of, variants
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.errors import ConfigError
from nmtdeep.model.build import build
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.step import Step

CODE = """
from typing import Literal
import torch
from torch import nn
from nmtdeep import variants

class Sums(variants.CombinationVariant):
    type: Literal["guest.sums"] = "guest.sums"
    def build(self, model, stack): return Sum()

class Sum(variants.Combination):
    connects = "sublayers"
    def start(self, x): return x
    def add(self, history, output): return history + output
    def read(self, history): return history

class Wrapped(variants.ResidualVariant):
    type: Literal["guest.wrapped"] = "guest.wrapped"
    def build(self, sublayer, model, stack):
        return variants.Residual(sublayer, dropout=0.0)

class Near(variants.PositionsVariant):
    type: Literal["guest.near"] = "guest.near"
    takes_packing = True
    values: bool = False
    def build(self, model, stack): return Nothing()
    def in_attention(self, model, stack): return Vectors(model.width // stack.heads, self.values)

class Nothing(nn.Module):
    def forward(self, x, start, packing=None): return x

class Vectors(nn.Module):
    def __init__(self, width, values):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.values = values
    def init_matrices(self): return ()
    def init_constants(self): yield self.weight, torch.ones(len(self.weight))
    def at(self, offsets):
        vectors = offsets.to(self.weight.dtype)[..., None] * self.weight
        return vectors, vectors if self.values else None
"""
CLASSES = ("Sums", "Wrapped", "Near")
NAMES = {f"guest.{name.lower()}": name for name in CLASSES}
SIDES = ("encoder", "decoder")
SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [4, 3, 9, 8, 7, 6, EOS]]
TARGETS = [[7, EOS], [8, 8, 4, 6, EOS], [3, 9, EOS]]
BUILT_IN = [tag_of(residual) for residual in variants(slots.Residual)]


@pytest.fixture(autouse=True)
def guest(tmp_path, monkeypatch):
    yield from installed("guest", CODE, NAMES, tmp_path, monkeypatch)


def of_both(slot: str, value: str) -> list[str]:
    return [f"model.{side}.{slot}={value}" for side in SIDES]


def built(*overrides: str) -> Any:
    model = load_recipe("deep-small", [*testing.TINY, *overrides]).model
    return build(model, source_types=24, target_types=24)


@pytest.mark.parametrize("residual", ["pre_norm", "no_norm"])
def test_sums_of_sublayers_are_the_residuals_that_they_replace(residual, tiny_model):
    plain, summed = (
        tiny_model(encoder=residual, decoder=residual, combinations=(each, each))
        for each in ("residual", "guest.sums")
    )
    logits = [model.output(model(testing.SOURCE, testing.TARGET)) for model in (plain, summed)]
    assert_close(*logits, rtol=0, atol=1e-12)
    ours, theirs = (model.encode_deeply(testing.SOURCE)[1] for model in (summed, plain))
    assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("residual", sorted({*BUILT_IN, "guest.wrapped"} - {"pre_norm", "no_norm"}))
def test_sublayers_are_connected_where_residuals_are_sums_alone(side, residual):
    name = "attention_residuals" if side == "decoder" else "guest.sums"
    adam = "training.optimizer=adam"
    changed = [f"model.{side}.combination={name}", f"model.{side}.residual={residual}", adam]
    said = f"{side}.combination: {name} works only with residual: pre_norm or no_norm, not "
    with pytest.raises(ConfigError, match=said) as caught:
        built(*changed)
    assert f"set model.{side}.residual: pre_norm" in str(caught.value)


def test_there_are_no_layers_to_skip_where_sublayers_are_connected():
    with pytest.raises(ConfigError, match="there are no layers to skip") as caught:
        built(*of_both("combination", "guest.sums"), "model.dropout.layer=0.1")
    assert str(caught.value).startswith("model.dropout.layer: ")


@pytest.mark.parametrize("values", [False, True])
def test_relative_positions_count_in_each_sentence_of_a_row(values, tiny_model, make_corpus):
    positions = {"type": "guest.near", "values": values}
    corpus, every = ParallelCorpus(make_corpus(SOURCES), make_corpus(TARGETS)), np.arange(3)
    results = []
    for batch in (read_batch(corpus, every), read_batch(corpus, every, packed=True)):
        step = Step(tiny_model(positions=positions), Training())
        sums = step.forward_backward(RankBatches.single([batch]), 1).sums
        results.append((sums, {name: each.grad for name, each in step.model.named_parameters()}))
    padded, packed = results
    assert_close(packed, padded)
    without = tiny_model(positions=positions)
    for module in without.modules():
        if hasattr(module, "relative"):
            module.relative = None
    none = Step(without, Training()).forward_backward(
        RankBatches.single([read_batch(corpus, every, packed=True)]), 1
    )
    assert not torch.allclose(none.sums, packed[0], rtol=1e-3)
