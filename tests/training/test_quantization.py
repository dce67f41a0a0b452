"""Training with 8-bit integers: the loss is that of a model whose numbers were rounded by hand."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from nmtdeep.checkpoint import MODEL, locate, read_tensors
from nmtdeep.data.batch import Batch
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.merged_attention import MergedAttention
from nmtdeep.model.quantization import round_products
from nmtdeep.training.loss import batch_loss
from training.tiny import records, trained


def by_hand(x, parts=1):
    """Each part by its own 127 / max |x|, halves to even."""
    pieces = []
    for part in np.split(x.detach().numpy(), parts):
        q = 127 / np.abs(part).max()
        pieces.append(np.rint(part * q) / q)
    return torch.from_numpy(np.concatenate(pieces))


def rounded_by_hand(model):
    """A copy with rounded weights, whose linear maps round their inputs before they use them."""
    model = copy.deepcopy(model)
    parts = {"qkv": 3, "key_value": 2}
    with torch.no_grad():
        tables = [model.source_embedding, model.target_embedding]
        for table in tables:
            table.weight = torch.nn.Parameter(by_hand(table.weight))
        for name, module in model.named_modules():
            if isinstance(module, Linear):
                weight = by_hand(module.weight, parts.get(name.split(".")[-1], 1))
                module.weight = torch.nn.Parameter(weight)
                module.register_forward_pre_hook(lambda _, inputs: (by_hand(inputs[0]),))
        for module in model.modules():
            if isinstance(module, MergedAttention):
                module.value = ByHand(*module.value_map())
    return model


class ByHand(torch.nn.Module):
    """A map with rounded weights `(weight, bias)`, of rounded inputs."""

    def __init__(self, weight, bias):
        super().__init__()
        self.weight, self.bias = weight.detach(), bias.detach()

    def forward(self, x):
        return by_hand(x) @ self.weight.T + self.bias


@pytest.mark.parametrize(
    "sublayers",
    [("self_attention", "cross_attention", "feed_forward"), ("merged_attention", "feed_forward")],
)
def test_the_loss_is_that_of_rounded_numbers(tiny_model, sublayers):
    model = tiny_model(sublayers=sublayers)
    source = torch.tensor([[5, 7, 4, 1], [6, 1, 0, 0]])
    inputs, outputs = torch.tensor([[1, 4, 6], [1, 5, 0]]), torch.tensor([[4, 6, 1], [5, 1, 0]])
    batch = Batch(source, inputs, outputs, target_tokens=5, padded_tokens=0, real_tokens=0)
    rounded = rounded_by_hand(model)
    hidden = rounded(source, inputs)
    # All positions at once, padding too: the range of an input is that of the whole batch.
    logits = rounded.output(hidden)
    expected = F.cross_entropy(
        logits.flatten(0, 1), outputs.flatten(), ignore_index=0, reduction="sum"
    )
    round_products(model)
    loss = batch_loss(model, batch, smoothing=0.0, dtype=torch.float64)
    assert_close(loss.nll, expected, rtol=1e-9, atol=1e-9)
    loss.smoothed.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_training_with_8_bit_integers_learns_and_keeps_whole_weights(tiny_run, tmp_path):
    run = trained(
        tiny_run,
        tmp_path / "run",
        max_updates=12,
        quantization="int8",
        log_every=4,
        validation={"bleu": False, "best_by": "loss"},
        schedule={"type": "linear", "lr": 0.02, "warmup_updates": 2},
        start_from={"path": str(tiny_run.path)},
    )
    losses = [record["nll"] for record in records(run)]
    assert losses[-1] < losses[0]
    weight = read_tensors(locate(run) / MODEL)["encoder.layers.0.sublayers.0.sublayer.qkv.weight"]
    assert len(weight.unique()) > 256
