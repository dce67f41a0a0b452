"""Layer combinations against their equations, written as loops."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from model.drawn import drawn, filled, some_function, started
from nmtdeep.model.layers.combination import (
    LinearCombination,
    PlainStack,
    Weights,
    starting_weights,
)

WIDTH, DEPTH = 6, 4
SHAPE = (2, 3, WIDTH)


def layer(number):
    """Some function, another one for each layer."""
    return lambda x: x + some_function(number, x)


def through(combination, x):
    """The input of each layer, and the top."""
    reads = []
    history = combination.start(x)
    for number in range(DEPTH):
        reads.append(combination.read(history))
        history = combination.add(history, layer(number)(reads[-1]))
    return reads, combination.read(history)


def dlcl(place, count, **settings):
    """DLCL of `DEPTH` layers with `count` norms, everything random."""
    norms = [nn.LayerNorm(WIDTH) for _ in range(count)]
    every = {"weights": Weights(**settings), "norms": norms, "place": place}
    return filled(LinearCombination(range(DEPTH + 1), WIDTH, **every), seed=count)


def x():
    return drawn(*SHAPE, seed=7)


def formula(module, x):
    """x_{l+1} = norm_l(sum_k W_lk norm_k(y_k)), of which the one norm or the other is there."""
    settings, missing = module.settings, DEPTH + 1 - len(module.norms)

    def norm(place, number, y):
        has_norm = place == module.place and number >= missing
        return module.norms[number - missing](y) if has_norm else y

    outputs, reads = [x], []
    for row in range(DEPTH + 1):
        seen = range(max(0, row + 1 - (settings.window or DEPTH + 1)), row + 1)
        weights = {k: module.weight[row, k].repeat(WIDTH // settings.groups) for k in seen}
        if settings.softmax:
            mass = sum(weights[k].exp() for k in seen)
            weights = {k: weights[k].exp() / mass for k in seen}
        total = sum(weights[k] * norm("before", k, outputs[k]) for k in seen)
        reads.append(norm("after", row, total))
        outputs.append(layer(row)(reads[-1]))
    return reads


@pytest.mark.parametrize("count", [0, DEPTH, DEPTH + 1])
@pytest.mark.parametrize(
    ("place", "settings"),
    [
        ("before", {}),  # Eq. 8 of Wang et al. 2019
        ("after", {}),  # Eq. 9
        ("before", {"groups": 2}),
        ("before", {"groups": WIDTH}),
        ("before", {"softmax": True, "window": 2}),
    ],
    ids=str,
)
def test_dlcl_equals_the_formula(place, settings, count):
    module = dlcl(place, count, **settings)
    reads, top = through(module, x())
    assert_close([*reads, top], formula(module, x()))


def sparse(boundaries, count=0):
    norms = [nn.LayerNorm(WIDTH) for _ in range(count)]
    return started(LinearCombination(boundaries, WIDTH, weights=Weights(), norms=norms))


def assert_plain(module):
    ours, theirs = through(module, x()), through(PlainStack(), x())
    assert all(map(torch.equal, [*ours[0], ours[1]], [*theirs[0], theirs[1]]))


def test_sparse_blocks_without_boundaries_equal_the_plain_stack():
    assert_plain(sparse((0,)))


def test_sparse_blocks_equal_figure_4_of_li():
    module = sparse((0, 2, 4), 2)
    reads, top = through(module, x())
    first = layer(1)(layer(0)(x()))
    second = (x() + module.norms[0](first)) / 2  # averages at the start
    last = layer(3)(layer(2)(second))
    assert_close(reads[0], x())
    assert_close(reads[1], layer(0)(x()))
    assert_close(reads[2], second)
    assert_close(top, (x() + module.norms[0](first) + module.norms[1](last)) / 3)


def denseformer(dilation, period):
    weights = Weights(initial="newest", dilation=dilation)
    chosen = {"weights": weights, "readers": range(period, DEPTH + 1, period)}
    return started(LinearCombination(range(DEPTH + 1), WIDTH, **chosen))


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("period", [1, 2, 3])
def test_denseformer_equals_section_3_of_pagliardini(dilation, period):
    """Y_i = sum_j alpha_ij X_j over j = i (mod k) if p divides i, else X_i; X_i = B_i(Y_{i-1})."""
    assert_plain(denseformer(dilation, period))  # at the start
    module = filled(denseformer(dilation, period), seed=period)
    reads, top = through(module, x())
    outputs, averages, read = [x()], [x()], set()
    for i in range(1, DEPTH + 1):
        outputs.append(layer(i - 1)(averages[-1]))
        seen = [j for j in range(i + 1) if j % dilation == i % dilation]
        average = sum(module.weight[i, j] * outputs[j] for j in seen)
        averages.append(outputs[-1] if i % period else average)
        read |= {(i, j) for j in seen if i % period == 0}
    assert_close([*reads, top], averages)
    (gradient,) = torch.autograd.grad(top.sum(), module.weight)
    assert {(i, j) for i, j, _ in gradient.nonzero().tolist()} <= read


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Weights(), [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]),
        (Weights(window=2), [[1, 0, 0], [1 / 2, 1 / 2, 0], [0, 1 / 2, 1 / 2]]),
        (Weights(initial="one"), [[1.0, 1.0, 1.0]] * 3),
    ],
)
def test_weights_at_the_start(settings, expected):
    for groups in (1, 3):
        start = starting_weights(3, settings._replace(groups=groups))
        assert_close(start, torch.tensor(expected)[..., None].expand(3, 3, groups))


def test_fixed_weights_are_not_parameters():
    module = dlcl("before", 0, learnable=False)
    assert not list(module.parameters())
    assert not module.state_dict()
    assert_close(through(module, x())[0][1], (x() + layer(0)(x())) / 2)


def test_history_dropout_applies_to_what_is_read():
    module = sparse((0, 2, 4))
    module.dropout.p = 0.5
    torch.manual_seed(3)
    reads, _ = through(module.train(), x())
    assert (reads[0] == 0).any()
    assert set((reads[0] / x()).round(decimals=9).unique().tolist()) == {0.0, 2.0}
    assert torch.equal(reads[1], layer(0)(reads[0]))
