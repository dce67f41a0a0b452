"""Weights that are cast all at once: the same sums and gradients."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from nmtdeep.data.batch import read_batch
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.passes import CastLoss, _Cast


def test_casts_and_their_gradients_are_those_of_torch():
    given = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True)]
    low = _Cast.apply(torch.bfloat16, *given, torch.randn(2, requires_grad=True))
    for each, tensor in zip(low, given, strict=False):
        assert torch.equal(each, tensor.to(torch.bfloat16))
    towards = [torch.randn_like(each) for each in low[:2]]
    found = torch.autograd.grad(low[:2], given, towards)
    assert all(torch.equal(g, each.float()) for g, each in zip(found, towards, strict=True))


@pytest.mark.parametrize("compiled", [False, True])
def test_the_loss_and_all_gradients_are_those_of_the_model(tiny_model, tiny_run, compiled):
    types, found = len(tiny_run.pipeline.source.vocabulary), []
    batch = read_batch(tiny_run.data.corpus("train"), np.arange(12))
    loss = partial(batch_loss, smoothing=0.1, dtype=torch.float64)
    for casts in (False, True):
        model = tiny_model(types=types, depth=1).train()
        if compiled and casts:
            model.compile_layers(backend="eager")
        cast = CastLoss(model, loss, torch.float64)
        sums = cast.loss(batch) if casts else loss(model, batch)
        sums.smoothed.backward()
        gradients = {name: each.grad for name, each in model.named_parameters()}
        found.append((sums.smoothed.detach(), gradients))
    assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
    maps = {
        f"model.{name}.{part}"
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name != "output"
        for part in ("weight", "bias")
    }
    assert set(cast.weights) == maps


def test_frozen_weights_need_no_backward_pass(tiny_model, tiny_run):
    model = tiny_model(types=len(tiny_run.pipeline.source.vocabulary)).train()
    for part in (model.source_embedding, model.encoder):
        part.requires_grad_(False)
    batch, seen = read_batch(tiny_run.data.corpus("train"), np.arange(12)), []
    model.encoder.layers[0].register_forward_hook(lambda *given: seen.append(given[-1]))
    CastLoss(model, partial(batch_loss, smoothing=0.1, dtype=torch.float64), torch.float64).loss(
        batch
    ).smoothed.backward()
    assert not any(each.requires_grad for each in tree_leaves(seen))
    trained = {name for name, each in model.named_parameters() if each.grad is not None}
    assert trained == {name for name, each in model.named_parameters() if each.requires_grad}
