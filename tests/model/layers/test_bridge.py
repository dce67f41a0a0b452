"""The memories that decoder layers attend to."""

import torch
from torch import nn
from torch.testing import assert_close

from nmtdeep.model.layers.bridge import Projection, TopLayer, Transparent
from nmtdeep.model.layers.linear import Linear

OUTPUTS = [torch.full((1, 2, 4), float(number), dtype=torch.float64) for number in (1, 5, 9)]


def test_every_layer_reads_the_top():
    assert [memory is OUTPUTS[2] for memory in TopLayer(3)(OUTPUTS[2], OUTPUTS)] == [True] * 3


def test_a_projection_takes_the_top_to_the_decoders_width():
    bridge = Projection(3, Linear(4, 2)).double()
    top = torch.randn(1, 2, 4, dtype=torch.float64)
    memories = bridge(top, OUTPUTS)
    weight, bias = bridge.projection.weight, bridge.projection.bias
    for position, memory in enumerate(memories[1][0]):
        expected = [weight[row] @ top[0, position] + bias[row] for row in range(2)]
        assert_close(memory, torch.stack(expected))
    assert len(memories) == 3
    deeper = Projection(5, Linear(4, 2)).double()
    deeper.inherit(bridge, [0, 1, 0], [0, 1, 2, 1, 2])
    assert_close(deeper(top, OUTPUTS)[4], memories[0], rtol=0, atol=0)


def test_transparent_attention_is_a_softmax_over_layers():
    bridge = Transparent(2, 2, nn.Identity()).double()
    with torch.no_grad():
        bridge.weight.copy_(torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]))
    first, second = bridge(OUTPUTS[0], OUTPUTS)
    assert_close(first, torch.full_like(first, 5.0))
    e = torch.e
    expected = (1 * e + 5 * e**2 + 9 * e**3) / (e + e**2 + e**3)
    assert_close(second, torch.full_like(second, expected))
    ((weight, start),) = bridge.init_constants()
    assert weight is bridge.weight
    assert not start.any()


def test_the_norm_follows_the_sum():
    norm = nn.LayerNorm(4).double()
    outputs = [torch.randn(1, 2, 4, dtype=torch.float64) for _ in range(3)]
    bridge = Transparent(2, 1, norm).double()
    torch.nn.init.zeros_(bridge.weight)
    assert_close(bridge(outputs[2], outputs)[0], norm(sum(outputs) / 3))


def test_dropout_removes_weights():
    bridge = Transparent(2, 500, nn.Identity(), dropout=0.5).double().train()
    torch.nn.init.zeros_(bridge.weight)
    torch.manual_seed(1)
    seen = {round(memory[0, 0, 0].item(), 6) for memory in bridge(OUTPUTS[2], OUTPUTS)}
    assert seen == {round(2 / 3 * total, 6) for total in (0, 1, 5, 6, 9, 10, 14, 15)}
