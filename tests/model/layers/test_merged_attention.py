"""Average and merged attention against loops over positions."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from model.drawn import drawn, filled
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.average_attention import AverageAttention
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.merged_attention import Both, MergedAttention
from nmtdeep.model.layers.sublayer import Context

WIDTH, HEADS, SENTENCES, TARGET, SOURCE = 6, 2, 2, 4, 3
X = drawn(SENTENCES, TARGET, WIDTH, seed=9)


def context():
    mask = torch.tensor([[True, True, True], [True, True, False]])[:, None, None, :]
    return Context(memory=drawn(SENTENCES, SOURCE, WIDTH, seed=50), memory_mask=mask)


@pytest.mark.parametrize("feed_forward", [False, True])
@pytest.mark.parametrize("gate", [False, True])
def test_average_attention_equals_a_loop(gate, feed_forward):
    inner = FeedForward(WIDTH, 10) if feed_forward else None
    module = filled(AverageAttention(WIDTH, gate=gate, feed_forward=inner))
    for sentence, place in product(range(SENTENCES), range(TARGET)):
        own = X[sentence, place]
        expected = X[sentence, : place + 1].sum(dim=0) / (place + 1)
        if inner is not None:
            hidden = (inner.inner.weight @ expected + inner.inner.bias).clamp(min=0)
            expected = inner.outer.weight @ hidden + inner.outer.bias
        if gate:
            both = module.gate.weight @ torch.cat((own, expected)) + module.gate.bias
            keep, take = 1 / (1 + (-both).exp()[:WIDTH]), 1 / (1 + (-both).exp()[WIDTH:])
            expected = keep * own + take * expected
        assert_close(module(X, Context())[sentence, place], expected)


def test_merged_attention_shares_value_and_output_projections():
    cross = CrossAttention(WIDTH, HEADS)
    module = filled(MergedAttention(cross))
    # (attention before its output) + (mean of x W_v + b_v), then W_o and b_o for both
    weight, bias = cross.key_value.weight[WIDTH:], cross.key_value.bias[WIDTH:]
    output = cross.output
    cross.output = nn.Identity()
    attended = cross(X, context())
    cross.output = output
    for place in range(TARGET):
        values = [X[:, earlier] @ weight.T + bias for earlier in range(place + 1)]
        expected = attended[:, place] + sum(values) / (place + 1)
        expected = expected @ output.weight.T + output.bias
        assert_close(module(X, context())[:, place], expected)
    assert sum(parameter.numel() for parameter in module.parameters()) == 4 * (WIDTH**2 + WIDTH)


def test_both_adds_the_outputs_of_its_parts():
    for make in (SelfAttention(WIDTH, HEADS, causal=True), AverageAttention(WIDTH, gate=True)):
        first, second = filled(make), filled(CrossAttention(WIDTH, HEADS))
        found = Both(first, second)(X, context())
        assert_close(found, first(X, context()) + second(X, context()))
