"""Hyper-connections and mHC against the papers' equations, position by position."""

import math
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from model.drawn import drawn, filled, some_function, started
from nmtdeep.model.layers.hyper_connections import (
    HyperConnection,
    HyperConnections,
    ManifoldConnection,
    sinkhorn_knopp,
)

SUBLAYERS, STREAMS, WIDTH = 3, 2, 4
SHAPE = (2, 3, WIDTH)


def through(combination, x):
    history = combination.start(x)
    for number in range(SUBLAYERS):
        history = combination.add(history, some_function(number, combination.read(history)))
    return combination.read(history)


def x():
    return drawn(*SHAPE, seed=7)


def by_position(x, weights):
    """Eq. 2 of Zhu et al. for each position: weights give A_m, A_r and B of sublayer k."""
    result = torch.empty_like(x)
    for place in product(range(SHAPE[0]), range(SHAPE[1])):
        streams = x[place].repeat(STREAMS, 1)
        for k in range(SUBLAYERS):
            read, kept, written = weights(k, streams)
            streams = kept.T @ streams + written.outer(some_function(k, read @ streams))
        result[place] = streams.sum(dim=0)
    return result


@pytest.mark.parametrize("dynamic", [False, True])
def test_hyper_connections_equal_equations_2_and_10_to_13(dynamic):
    norms = [nn.LayerNorm(WIDTH) if dynamic else None for _ in range(SUBLAYERS)]
    parts = [filled(HyperConnection(k, STREAMS, norms[k])) for k in range(SUBLAYERS)]

    def weights(k, streams):
        part, norm = parts[k], norms[k]
        alpha, beta = part.alpha, part.beta
        if norm is not None:
            mean, variance = streams.mean(1, True), streams.var(1, correction=0, keepdim=True)
            normed = (streams - mean) / (variance + 1e-5).sqrt() * norm.weight + norm.bias
            found = (normed @ part.dynamic.T).tanh()
            alpha = alpha + part.scales[0] * found[:, :-1]
            beta = beta + part.scales[1] * found[:, -1]
        return alpha[:, 0], alpha[:, 1:], beta

    assert_close(through(HyperConnections(parts, STREAMS), x()), by_position(x(), weights))


def test_mhc_equals_equations_7_to_9():
    n = STREAMS
    parts = [
        filled(ManifoldConnection(k, n, WIDTH, iterations=3, epsilon=1e-3))
        for k in range(SUBLAYERS)
    ]

    def weights(k, streams):
        part, flat = parts[k], streams.flatten()
        found = part.phi @ flat / (flat.square().mean() + 1e-3).sqrt()
        maps, biases = (each.split((n, n, n * n)) for each in (found, part.bias))
        parted = zip(part.scales, maps, biases, strict=True)
        before, after, mixed = (a * value + b for a, value, b in parted)
        square = mixed.view(n, n).exp()
        for _ in range(3):
            square = square / square.sum(dim=0)
            square = square / square.sum(dim=1, keepdim=True)
        return before.sigmoid(), square.T, 2 * after.sigmoid()  # A_r is H_res transposed

    assert_close(through(HyperConnections(parts, n), x()), by_position(x(), weights))


def test_mixing_matrices_of_mhc_are_doubly_stochastic():
    matrix = sinkhorn_knopp(drawn(5, 7, 4, 4), 100)
    assert (matrix >= 0).all()
    for dimension in (-1, -2):
        sums = matrix.sum(dim=dimension)
        assert_close(sums, torch.ones_like(sums))
    # Large logits, of which an exponential would overflow, or leave an empty row.
    extreme = torch.tensor([[0.0, 500.0], [-2000.0, -1000.0]], dtype=torch.float64)
    assert_close(sinkhorn_knopp(extreme, 20).sum(dim=-1), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("kind", ["static", "dynamic", "mhc"])
def test_at_the_start_the_streams_are_pre_norms_residual(kind, streams):
    parts = [
        ManifoldConnection(k, streams, WIDTH, iterations=20, epsilon=1e-5)
        if kind == "mhc"
        else HyperConnection(k, streams, nn.LayerNorm(WIDTH) if kind == "dynamic" else None)
        for k in range(SUBLAYERS)
    ]
    combination, plain = started(HyperConnections(parts, streams)), x()
    norm = nn.LayerNorm(WIDTH, eps=0, dtype=torch.float64)
    history = combination.start(x())
    for number in range(SUBLAYERS):
        history = combination.add(history, some_function(number, norm(combination.read(history))))
        plain = plain + some_function(number, norm(plain))
    assert_close(combination.read(history), streams * plain)


def test_streams_have_readers_of_their_own():
    """Without them all streams would have the same gradient, and stay the same forever."""
    mhc = started(ManifoldConnection(5, 4, WIDTH, iterations=20, epsilon=1e-5))
    hyper = started(HyperConnection(5, 4))
    streams = torch.ones(1, 4, WIDTH, dtype=torch.float64)
    assert hyper(streams).width[0].tolist() == [0, 1, 0, 0]  # e_{5 mod 4}
    read, *kept = mhc(streams).width[0]
    assert read.argmax() == 1
    assert_close(torch.stack(kept), torch.eye(4, dtype=torch.float64), rtol=0, atol=2e-3)


def test_mhc_can_start_with_one_stream_that_takes_most():
    part = ManifoldConnection(5, 4, WIDTH, iterations=20, epsilon=1e-5, start="one_stream")
    taken = started(part)(torch.ones(1, 4, WIDTH, dtype=torch.float64)).depth[0]
    large, small = (2 / (1 + math.exp(-b)) for b in (1, -1))
    assert_close(taken, torch.tensor([small, large, small, small], dtype=torch.float64))


def test_grown_connections_come_with_their_layers(tiny_model):
    reads = {"type": "hyper_connections", "streams": 2}
    old, new = (
        tiny_model(seed=depth, combinations=(reads, reads), depth=depth) for depth in (2, 3)
    )
    before = [dict(part.named_parameters()) for part in old.decoder.combination.connections]
    new.decoder.combination.inherit(old.decoder.combination, [0, 1, 0])
    after = [part.state_dict() for part in new.decoder.combination.connections]
    for number, source in enumerate([0, 1, 2, 3, 4, 5, 0, 1, 2]):  # three sublayers a layer
        for name, value in before[source].items():
            assert torch.equal(after[number][name], value)
