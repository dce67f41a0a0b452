"""LayerDrop: which layers a training pass skips, and the gradients of those."""

import pytest
import torch

from nmtdeep.model.layers.sublayer import Context
from nmtdeep.training.loss import batch_loss

X = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.fixture
def layer(tiny_model):
    """An encoder layer that is trained."""
    return tiny_model(seed=1).encoder.layers[0].train()


def passes(layer, count):
    torch.manual_seed(1)
    return [layer(X, Context()) for _ in range(count)]


def test_a_layer_is_skipped_with_its_probability(layer):
    (whole,) = passes(layer, 1)
    assert not torch.equal(whole, X)
    layer.drop = 0.3
    outputs = passes(layer, 400)
    skipped = [torch.equal(output, X) for output in outputs]
    assert all(torch.equal(output, X) or torch.equal(output, whole) for output in outputs)
    # 400 trials: mean 120, deviation sqrt(400 x 0.3 x 0.7) = 9.2.
    assert abs(sum(skipped) - 120) < 4 * 9.2
    assert all(torch.equal(out, whole) for out in passes(layer.eval(), 20))


@pytest.mark.parametrize("keeps", ["all", "input"])
def test_skipped_layers_get_zero_gradients(keeps, tiny_model, make_batch):
    """The gradient is that of a model without the layers; all ranks and batches add zeros."""
    dropped = tiny_model(seed=1, depth=3, dropout=0.0)
    dropped.keep(keeps)
    shallow = tiny_model(seed=1, depth=3)
    for stack in (dropped.encoder, shallow.encoder):
        stack.layers[1].drop = 1.0 - 1e-9
    shallow.encoder.layers[1] = torch.nn.Identity()
    shallow.encoder.layers[1].forward = lambda x, *_: x
    batch = make_batch([[5, 9, 1], [8, 1]], [[6, 5, 1], [9, 1]])
    for model in (dropped, shallow):
        batch_loss(model.train(), batch, smoothing=0.1, dtype=torch.float64).smoothed.backward()
    expected = dict(shallow.named_parameters())
    for name, parameter in dropped.named_parameters():
        if name.startswith("encoder.layers.1."):
            assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name
        else:
            assert torch.equal(parameter.grad, expected[name].grad), name
