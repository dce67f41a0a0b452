"""Initializers: measured bounds and variances are those of the formula, for every parameter."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from nmtdeep.model.build import build
from nmtdeep.model.initialization import glorot
from nmtdeep.model.transformer import Transformer

D, F, TYPES = 64, 96, 400
# name of the parameter: bound of its uniform distribution, None for a normal one of variance 1/d
UNIFORM = {
    r"self.*\.qkv\.weight": math.sqrt(6 / (D + 3 * D)),
    r"cross.*\.(query|key_value)\.weight": math.sqrt(6 / (D + 3 * D)),
    r"(self|cross).*\.output\.weight": math.sqrt(6 / (D + D)),
    r".*\.(inner|outer)\.weight": math.sqrt(6 / (D + F)),
    r"source_embedding\.bias": math.sqrt(3 / D),
}
CONSTANT = {
    r".*\.(qkv|query|key_value|output|inner|outer)\.bias": 0.0,
    r".*norm\.weight": 1.0,
    r".*norm\.bias": 0.0,
}


@pytest.fixture
def model(tiny_config: Callable) -> Transformer:
    described = tiny_config(width=D, feed_forward=F, sharing="none", bias=True)
    model = build(described, source_types=TYPES, target_types=TYPES)
    for parameter in model.parameters():
        nn.init.constant_(parameter, math.nan)
    return model


def label(model: Transformer, name: str) -> str:
    """The parameter's name with what kind of attention it belongs to."""
    owner = model.get_submodule(name.rpartition(".")[0].removesuffix(".output"))
    kinds = {"SelfAttention": "self", "CrossAttention": "cross"}
    parent = model.get_submodule(name.rpartition(".")[0].rpartition(".")[0])
    return f"{kinds.get(type(parent).__name__, kinds.get(type(owner).__name__, ''))}.{name}"


def matching(table: dict[str, float], name: str) -> list[float]:
    return [value for pattern, value in table.items() if re.fullmatch(pattern, name)]


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_each_parameter_is_drawn_as_its_formula_says(model: Transformer, gain: float) -> None:
    glorot(model, gain=gain, seed=1)
    seen = 0
    for name, parameter in model.named_parameters():
        values, count = parameter.detach().double(), parameter.numel()
        marked = label(model, name)
        uniform = matching(UNIFORM, marked) or matching(UNIFORM, name)
        constant = matching(CONSTANT, marked)
        if uniform:
            (bound,) = uniform
            bound *= gain if name.endswith("weight") else 1
            assert 0.9 * bound < values.abs().max() <= bound * (1 + 1e-6), name
            # The variance of n squared uniform draws has a relative deviation of sqrt(0.8 / n).
            measured = float(values.square().mean())
            assert measured == pytest.approx(bound**2 / 3, rel=5 * math.sqrt(0.8 / count)), name
        elif constant:
            assert values.unique().tolist() == constant, name
        else:
            assert name in ("source_embedding.weight", "target_embedding.weight", "output.weight")
            assert values[0].count_nonzero() == 0
            measured = float(values[1:].square().mean())
            assert measured == pytest.approx(1 / D, rel=5 * math.sqrt(2 / count)), name
        if not constant:
            assert abs(float(values.mean())) < 5 * math.sqrt(measured / count), name
        seen += 1
    layers = 2 * (4 + 4) + 2 * (4 + 6 + 4) + 2 * 2 * 2 + 2 * 3 * 2
    assert seen == layers + 2 * 2 + 4  # and two top norms, three tables, one embedding bias


def test_a_parameter_of_no_known_kind_is_named(model: Transformer) -> None:
    model.decoder.layers[1].stray = nn.Parameter(torch.zeros(3))
    model.bridge.mixture = nn.Parameter(torch.zeros(3))
    names = re.escape("bridge.mixture, decoder.layers.1.stray")
    with pytest.raises(ValueError, match=f"{names}$"):
        glorot(model)


def test_only_values_change(model: Transformer) -> None:
    def structure() -> list:
        modules = [(name, type(module), id(module)) for name, module in model.named_modules()]
        parameters = [
            (name, id(parameter), parameter.shape, parameter.dtype, parameter.requires_grad)
            for name, parameter in model.named_parameters()
        ]
        return [modules, parameters, model.training]

    before = structure()
    glorot(model)
    assert structure() == before


def test_the_seed_alone_decides(model: Transformer) -> None:
    def drawn(seed: int) -> dict[str, torch.Tensor]:
        glorot(model, seed=seed)
        return {name: value.detach().clone() for name, value in model.named_parameters()}

    torch.manual_seed(1)
    first = drawn(3)
    state = torch.get_rng_state()
    torch.manual_seed(2)
    second, third = drawn(3), drawn(4)
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.items():
        assert torch.equal(value, second[name])
        assert torch.equal(value, third[name]) == bool(matching(CONSTANT, f".{name}")), name


def test_the_gain_multiplies_matrices_only(model: Transformer) -> None:
    glorot(model, gain=1.0, seed=5)
    plain = {name: value.detach().clone() for name, value in model.named_parameters()}
    glorot(model, gain=0.25, seed=5)
    for name, value in model.named_parameters():
        matrix = name.endswith("weight") and ".sublayer." in name
        assert_close(value.detach(), plain[name] * (0.25 if matrix else 1.0))


def test_layers_are_not_copies_of_each_other(model: Transformer) -> None:
    glorot(model)
    for stack in (model.encoder, model.decoder):
        first, second = (list(layer.parameters()) for layer in stack.layers)
        same = [torch.equal(one, two) for one, two in zip(first, second, strict=True)]
        matrices = [one.dim() == 2 for one in first]
        assert [not one for one in same] == matrices
