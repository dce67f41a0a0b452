"""The simpler simple recurrent unit equals a loop over positions in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from model.drawn import drawn, filled
from nmtdeep.model.layers.ssru import Ssru, recurrence
from nmtdeep.model.layers.sublayer import Context
from nmtdeep.packing import Packing

WIDTH = 6


def by_loop(module: Ssru, sentence: torch.Tensor) -> torch.Tensor:
    """`(positions, width)`: c_t = f_t c_(t-1) + (1 - f_t) W x_t, then max(0, c_t)."""
    cell, outputs = torch.zeros(WIDTH, dtype=torch.float64), []
    for x in sentence:
        forget = 1 / (1 + (-(module.gate.weight @ x + module.gate.bias)).exp())
        cell = forget * cell + (1 - forget) * (module.candidate.weight @ x)
        outputs.append(cell.clamp(min=0))
    return torch.stack(outputs)


@pytest.mark.parametrize("positions", [1, 2, 3, 7, 8, 33])
def test_all_positions_equal_a_loop(positions: int) -> None:
    module, x = filled(Ssru(WIDTH)), drawn(2, positions, WIDTH, seed=9)
    expected = torch.stack([by_loop(module, sentence) for sentence in x])
    assert_close(module(x, Context()), expected, rtol=1e-12, atol=1e-12)


def test_gradients_equal_those_of_a_loop() -> None:
    module, x, weight = filled(Ssru(WIDTH)), drawn(1, 11, WIDTH, seed=9), drawn(11, WIDTH, seed=8)
    inputs = [*module.parameters(), x.requires_grad_()]
    ours = torch.autograd.grad((module(x, Context())[0] * weight).sum(), inputs)
    theirs = torch.autograd.grad((by_loop(module, x[0]) * weight).sum(), inputs)
    assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_packed_sentences_equal_each_alone() -> None:
    module, lengths = filled(Ssru(WIDTH)), [4, 1, 9]
    sentences = [drawn(length, WIDTH, seed=length) for length in lengths]
    packing = Packing.of(np.array(lengths))
    packed = module(torch.cat(sentences)[None], Context(packing=packing))
    assert_close(packed[0], torch.cat([by_loop(module, each) for each in sentences]))


def test_steps_equal_all_positions_and_follow_their_hypotheses() -> None:
    module, x = filled(Ssru(WIDTH)), drawn(2, 5, WIDTH, seed=9)
    state = module.start(Context())
    module(x[:, :1], Context(), state)
    state.select(torch.tensor([1, 1]), torch.tensor([1]))  # the first sentence is done
    for place in range(1, 5):
        newest = x[1:, place : place + 1].expand(-1, 2, -1)
        out = module(newest, Context(), state)
        assert_close(out[0], by_loop(module, x[1])[place].expand(2, -1))


def test_states_do_not_overflow_in_long_sentences() -> None:
    keep, new = torch.full((1, 4096, 1), 0.999), torch.full((1, 4096, 1), 0.001)
    assert_close(recurrence(keep, new)[0, -1, 0].item(), 1 - 0.999**4096, rtol=1e-4, atol=0)
