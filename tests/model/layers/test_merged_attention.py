"""Average and merged attention against loops over positions."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.average_attention import AverageAttention
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.merged_attention import Both, MergedAttention
from nmtdeep.model.layers.sublayer import Context, Sublayer

WIDTH, HEADS, SENTENCES, TARGET, SOURCE = 6, 2, 2, 4, 3


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def filled(module: Sublayer) -> Sublayer:
    module.double()
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(random(*parameter.shape, seed=number))
    return module


def context() -> Context:
    mask = torch.tensor([[True, True, True], [True, True, False]])[:, None, None, :]
    return Context(memory=random(SENTENCES, SOURCE, WIDTH, seed=50), memory_mask=mask)


@pytest.mark.parametrize("feed_forward", [False, True])
@pytest.mark.parametrize("gate", [False, True])
def test_average_attention_equals_a_loop(gate, feed_forward):
    inner = FeedForward(WIDTH, 10) if feed_forward else None
    module = filled(AverageAttention(WIDTH, gate=gate, feed_forward=inner))
    x = random(SENTENCES, TARGET, WIDTH, seed=9)
    out = module(x, Context())
    for sentence in range(SENTENCES):
        for place in range(TARGET):
            own = x[sentence, place]
            mean = sum(x[sentence, earlier] for earlier in range(place + 1)) / (place + 1)
            expected = mean
            if inner is not None:
                hidden = (inner.inner.weight @ mean + inner.inner.bias).clamp(min=0)
                expected = inner.outer.weight @ hidden + inner.outer.bias
            if gate:
                both = module.gate.weight @ torch.cat((own, expected)) + module.gate.bias
                keep, take = 1 / (1 + (-both).exp()[:WIDTH]), 1 / (1 + (-both).exp()[WIDTH:])
                expected = keep * own + take * expected
            assert_close(out[sentence, place], expected)


def test_merged_attention_shares_value_and_output_projections():
    cross = CrossAttention(WIDTH, HEADS)
    module = filled(MergedAttention(cross))
    x = random(SENTENCES, TARGET, WIDTH, seed=9)
    # (attention before its output) + (mean of x W_v + b_v), then W_o and b_o for both
    weight, bias = cross.key_value.weight[WIDTH:], cross.key_value.bias[WIDTH:]
    output = cross.output
    cross.output = nn.Identity()
    attended = cross(x, context())
    cross.output = output
    for place in range(TARGET):
        values = [x[:, earlier] @ weight.T + bias for earlier in range(place + 1)]
        expected = attended[:, place] + sum(values) / (place + 1)
        expected = expected @ output.weight.T + output.bias
        assert_close(module(x, context())[:, place], expected)
    assert sum(parameter.numel() for parameter in module.parameters()) == 4 * (WIDTH**2 + WIDTH)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SelfAttention(WIDTH, HEADS, causal=True),
        lambda: AverageAttention(WIDTH, gate=True),
    ],
)
def test_both_adds_the_outputs_of_its_parts(make):
    first, second = filled(make()), filled(CrossAttention(WIDTH, HEADS))
    module = Both(first, second)
    x = random(SENTENCES, TARGET, WIDTH, seed=9)
    assert_close(module(x, context()), first(x, context()) + second(x, context()))
