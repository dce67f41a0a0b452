"""Layers that are computed again on the way back: the same gradients, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmtdeep.config.training import InterSimilarity, NoRegularizer, Training
from nmtdeep.data.batch import Batch, Share
from nmtdeep.model.layers.context import Sublayer
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.step import Step
from tests.model.choices import COMBINATIONS, label

SOURCES = [[5, 9, 4, 7, 1], [8, 3, 1], [1]]
TARGETS = [[6, 5, 19, 1], [12, 7, 4, 1], [9, 1]]
LossAndGradients = tuple[Tensor, dict[str, Tensor]]


def passes(
    model: Transformer, batch: Batch, dtype: torch.dtype, regularizer: Any, seed: int = 3
) -> LossAndGradients:
    """Loss and gradients of one training pass, its dropout drawn from `seed`."""
    torch.manual_seed(seed)
    model.train().zero_grad()
    loss = batch_loss(model, batch, smoothing=0.1, dtype=dtype, regularizer=regularizer).smoothed
    loss.backward()
    return loss.detach(), {name: value.grad for name, value in model.named_parameters()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("choice", COMBINATIONS, ids=label)
def test_gradients_equal_those_without_recomputation(
    choice: dict[str, Any],
    dtype: torch.dtype,
    tiny_model: Callable[..., Transformer],
    make_batch: Callable[..., Batch],
) -> None:
    exact = dtype == torch.float64
    model = tiny_model(
        seed=1, dropout=0.3, dtype=torch.float64 if exact else torch.float32, **choice
    )
    regularizer = InterSimilarity() if exact else NoRegularizer()
    batch = make_batch(SOURCES, TARGETS)
    loss, gradients = passes(model, batch, dtype, regularizer)
    model.keep("input")
    assert not torch.equal(passes(model, batch, dtype, regularizer, seed=4)[0], loss)  # dropout
    again, recomputed = passes(model, batch, dtype, regularizer)
    assert torch.equal(again, loss)
    for name, gradient in gradients.items():
        assert torch.equal(recomputed[name], gradient), name


@pytest.mark.parametrize(("key", "forwards"), [("none", 1), ("layers", 2)])
def test_sublayers_run_twice_in_training_and_once_elsewhere(
    key: str,
    forwards: int,
    tiny_model: Callable[..., Transformer],
    make_batch: Callable[..., Batch],
) -> None:
    model, batch = tiny_model(), make_batch(SOURCES, TARGETS)
    settings = Training.model_validate({"checkpoint_activations": key})
    calls = dict.fromkeys((part for part in model.modules() if isinstance(part, Sublayer)), 0)
    assert len(calls) == 10

    def count(module: Sublayer, *_: object) -> None:
        calls[module] += 1

    for module in calls:
        module.register_forward_pre_hook(count)
    Step(model, settings).update(Share.whole([batch]), 1, 0.1)
    assert set(calls.values()) == {forwards}
    batch_loss(model.eval(), batch, smoothing=0.1, dtype=torch.float32)
    with torch.no_grad():
        batch_loss(model.train(), batch, smoothing=0.1, dtype=torch.float32)
    assert set(calls.values()) == {forwards + 2}
