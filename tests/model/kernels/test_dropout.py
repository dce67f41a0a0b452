"""Dropout: the right rate, the mean kept, torch's seed in charge."""

import math

import pytest
import torch

from nmtdeep.model.kernels import dropout
from nmtdeep.model.layers.dropout import Dropout

COUNT = 200_000


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.9])
def test_rate_scale_and_mean(probability):
    torch.manual_seed(3)
    y = dropout(torch.ones(COUNT, dtype=torch.float64), probability, training=True)
    rounded = round(probability * 65_536) / 65_536
    dropped = int((y == 0).sum())
    deviation = math.sqrt(probability * (1 - probability) * COUNT)
    assert abs(dropped - probability * COUNT) < 5 * deviation
    assert y[y != 0].unique().tolist() == [1 / (1 - rounded)]
    assert abs(float(y.mean()) - 1) < 5 * deviation / (1 - probability) / COUNT


def test_neighbors_drop_independently():
    torch.manual_seed(4)
    zero = dropout(torch.ones(COUNT), 0.3, training=True) == 0
    for step in (1, 2, 4, 8):
        both = int((zero[step:] & zero[:-step]).sum())
        assert abs(both - 0.09 * COUNT) < 5 * math.sqrt(0.09 * 0.91 * COUNT)


def test_the_seed_of_torch_determines_the_noise_of_each_call():
    x = torch.ones(50, 7)
    torch.manual_seed(5)
    first, second = dropout(x, 0.5, training=True), dropout(x, 0.5, training=True)
    torch.manual_seed(5)
    again = dropout(x, 0.5, training=True)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_the_gradient_is_dropped_like_the_output():
    x = torch.full((1000,), 2.0, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(6)
    y = dropout(x, 0.25, training=True)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach() / 2)


def test_evaluation_and_rate_zero_change_nothing():
    x = torch.randn(9)
    assert dropout(x, 0.0, training=True) is x
    assert Dropout(0.9).eval()(x) is x
    assert not torch.equal(Dropout(0.9).train()(x), x)
