"""Layers that are computed again on the way back: the same gradients, bit for bit."""

import pytest
import torch
from model.choices import VARIANTS

from nmtdeep.config.training import InterSimilarity, NoRegularizer, Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.model.layers.sublayer import Sublayer
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.step import Step

SOURCES = [[5, 9, 4, 7, 1], [8, 3, 1], [1]]
TARGETS = [[6, 5, 19, 1], [12, 7, 4, 1], [9, 1]]


def passes(model, batch, seed=3, dtype=torch.float64):
    """Loss and gradients of one training pass, its dropout drawn from `seed`."""
    torch.manual_seed(seed)
    model.train().zero_grad()
    regularizer = InterSimilarity() if dtype == torch.float64 else NoRegularizer()
    loss = batch_loss(model, batch, smoothing=0.1, dtype=dtype, regularizer=regularizer).smoothed
    loss.backward()
    return loss.detach(), {name: value.grad for name, value in model.named_parameters()}


def assert_same(first, second):
    assert torch.equal(first[0], second[0])
    for name, gradient in first[1].items():
        assert torch.equal(second[1][name], gradient), name


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_equal_those_without_recomputation(name, tiny_model, make_batch):
    model = tiny_model(seed=1, dropout=0.3, **VARIANTS[name])
    batch = make_batch(SOURCES, TARGETS)
    whole = passes(model, batch)
    model.keep("input")
    assert not torch.equal(passes(model, batch, seed=4)[0], whole[0])  # dropout
    assert_same(whole, passes(model, batch))


def test_the_way_back_has_the_precision_of_the_way_there(tiny_model, make_batch):
    model = tiny_model(seed=1, dropout=0.3, dtype=torch.float32)
    batch = make_batch(SOURCES, TARGETS)
    whole = passes(model, batch, dtype=torch.bfloat16)
    model.keep("input")
    assert_same(whole, passes(model, batch, dtype=torch.bfloat16))


@pytest.mark.parametrize(("key", "forwards"), [("none", 1), ("layers", 2)])
def test_sublayers_run_twice_in_training_and_once_elsewhere(key, forwards, tiny_model, make_batch):
    model, batch = tiny_model(), make_batch(SOURCES, TARGETS)
    settings = Training.model_validate({"checkpoint_activations": key})
    calls = dict.fromkeys((part for part in model.modules() if isinstance(part, Sublayer)), 0)
    assert len(calls) == 10

    def count(module, *_):
        calls[module] += 1

    for module in calls:
        module.register_forward_pre_hook(count)
    Step(model, settings).update(RankBatches.single([batch]), 1, 0.1)
    assert set(calls.values()) == {forwards}
    batch_loss(model.eval(), batch, smoothing=0.1, dtype=torch.float32)
    with torch.no_grad():
        batch_loss(model.train(), batch, smoothing=0.1, dtype=torch.float32)
    assert set(calls.values()) == {forwards + 2}
