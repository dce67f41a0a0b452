"""Layers of the ODE Transformer and with a bottom-to-top connection, by their formulas."""

from math import factorial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from nmtdeep.model.build import initialize
from nmtdeep.model.layer_variants import WEIGHTS, GatedSum, RungeKutta, WeightedSum
from nmtdeep.model.layers.residual import NoNorm
from nmtdeep.model.layers.sublayer import Context, Sublayer

EXACT = {"rtol": 0, "atol": 1e-12}
X = torch.randn(1, 4, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


class Times(Sublayer):
    """factor x."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, context, state=None):
        return self.factor * x


def linear(order, factor):
    """The method for y' = factor y."""
    total = WeightedSum(WEIGHTS[order], learned=False)
    wrapper = NoNorm(Times(factor), dropout=0.0)
    return RungeKutta([wrapper], order=order, total=total, function="change")


@pytest.mark.parametrize("order", [2, 4])
def test_a_linear_equation_has_the_first_terms_of_e(order):
    """One step of order p for y' = a y multiplies y by sum_{n <= p} a^n / n!."""
    for factor in (0.0, 0.1, -1.5):
        expected = sum(factor**n / factorial(n) for n in range(order + 1))
        assert_close(linear(order, factor)(X, Context()), expected * X, **EXACT)


def gated(y, f, layer):
    first = f(y)
    second = f(y + first)
    w, b = layer.total.gate.weight[0], layer.total.gate.bias
    out = y.clone()
    for place in range(y.shape[1]):
        one, two = first[0, place], second[0, place]
        g = (w @ torch.cat((one, two)) + b).sigmoid()
        out[0, place] += g * one + (1 - g) * two
    return out


def learned(y, f, layer):
    gamma = layer.total.weight
    return y + gamma[0] * f(y) + gamma[1] * f(y + f(y))


def fourth(y, f, layer):
    one = f(y)
    two = f(y + one / 2)
    three = f(y + two / 2)
    return y + (one + 2 * two + 2 * three + f(y + three)) / 6


@torch.no_grad()
@pytest.mark.parametrize("function", ["change", "output"])
@pytest.mark.parametrize(
    ("expected", "settings"),
    [(gated, {"weights": "gate"}), (learned, {"weights": "learned"}), (fourth, {"order": 4})],
)
def test_a_layer_equals_the_steps_written_out(expected, settings, function, tiny_model):
    form = {"type": "runge_kutta", "function": function, **settings}
    layer = tiny_model(seed=1, encoder=form).encoder.layers[0]

    def value(y):
        out = y
        for wrapper in layer:
            out = out + wrapper.sublayer(wrapper.norm(out), Context())
        return out - y if function == "change" else out

    assert_close(layer(X, Context()), expected(X, value, layer), **EXACT)


def test_gates_are_drawn_and_learned_weights_start_at_one(tiny_model, tiny_config):
    choices = {"encoder": {"type": "runge_kutta", "weights": "gate"}, "decoder": "post_norm"}
    model = tiny_model(**choices)
    initialize(model, tiny_config(**choices), seed=1)
    total = model.encoder.layers[1].total
    assert isinstance(total, GatedSum)
    bound = (6 / (16 + 1)) ** 0.5  # Glorot's, of 2d inputs and one output
    assert 0.5 * bound < total.gate.weight.abs().max() <= bound
    assert total.gate.bias.tolist() == [0]
    ((_, start),) = WeightedSum((1.0, 1.0), learned=True).init_constants()
    assert start.tolist() == [1, 1]


@torch.no_grad()
@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_the_last_norm_of_a_layer_reads_its_input_too(side, tiny_model):
    """norm(x_inp + x + FFN(x)), plain post-norm below (Takase et al. 2022)."""
    model = tiny_model(seed=1, **{side: "b2t"})
    layer = getattr(model, side).layers[0]
    context = Context(memory=X)
    *below, last = layer
    x = X
    for wrapper in below:
        x = wrapper.norm(x + wrapper.sublayer(x, context))
    inside = X + x + last.sublayer(x, context)
    mean, variance = inside.mean(2, keepdim=True), inside.var(2, keepdim=True, correction=0)
    norm: nn.LayerNorm = last.norm
    expected = (inside - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias
    assert_close(layer(X, context), expected, **EXACT)
