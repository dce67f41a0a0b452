"""Attention residuals against the equations; their special cases."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from model.drawn import drawn, filled, some_function, started
from nmtdeep.model.layers.attention_residuals import AttentionResiduals

SUBLAYERS, WIDTH, EPSILON = 5, 4, 1e-3


def through(combination, x):
    """The input of each sublayer, and the top."""
    history = combination.start(x)
    reads = [combination.read(history)]
    for number in range(SUBLAYERS):
        history = combination.add(history, some_function(number, reads[-1]))
        reads.append(combination.read(history))
    return reads


def residuals(block, deviation):
    module = AttentionResiduals(SUBLAYERS, WIDTH, block=block, epsilon=EPSILON)
    return filled(module, deviation, seed=block)


def x():
    return drawn(2, 3, WIDTH, seed=7)


def attended(query, values):
    """Eq. 2 and 4 of the Kimi Team."""
    values = torch.stack(values)
    phi = (values / (values.square().mean(-1, True) + EPSILON).sqrt() @ query).exp()
    return (phi[..., None] * values).sum(dim=0) / phi.sum(dim=0)[..., None]


@pytest.mark.parametrize("block", [1, 2, 3, 9])
def test_reads_equal_equations_2_to_6(block):
    """A block of 1 is Full AttnRes; 5 sublayers leave blocks of 2 and of 3 a smaller last one."""
    module = residuals(block, 1.0)
    outputs: list[Tensor] = []
    for number, read in enumerate(through(module, x())):
        values = [x()]
        for first in range(0, number, block):
            values.append(sum(outputs[first : min(first + block, number)]))
        expected = attended(module.query[number], values)
        assert_close(read, expected)
        outputs.append(some_function(number, expected))


def test_at_the_start_each_sublayer_reads_the_mean_of_all_outputs():
    outputs = [x()]
    for number, read in enumerate(through(started(residuals(1, 1.0)), x())):
        assert_close(read, sum(outputs) / len(outputs))
        outputs.append(some_function(number, read))


def test_grown_queries_come_with_their_layers(tiny_model):
    reads = {"type": "attention_residuals"}
    old, new = (
        tiny_model(seed=depth, combinations=(reads, "residual"), depth=depth) for depth in (2, 4)
    )
    ours, theirs = new.encoder.combination.query, old.encoder.combination.query
    own = ours.tolist()
    with torch.no_grad():
        new.encoder.combination.inherit(old.encoder.combination, [0, 1, None, 0])
    rows = theirs.tolist()
    assert ours.tolist() == [*rows[:4], *own[4:6], *rows[:2], rows[4]]
