"""Rounding to 8-bit integers equals arithmetic with integers, and gradients pass through it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from model.drawn import drawn
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.rounding import Rounding, factor, rounded


def test_numbers_become_integers_by_the_largest_and_halves_go_to_even() -> None:
    x = torch.tensor([-2.54, 0.03, 0.05, 0.01])  # q = 50: -127, 1.5, 2.5, 0.5
    assert factor(x).item() == pytest.approx(50)
    assert (rounded(x, 50.0) * 50).tolist() == pytest.approx([-127, 2, 2, 0])
    assert rounded(torch.tensor([9.0, -9.0]), 50.0).tolist() == pytest.approx([2.54, -2.54])
    assert factor(torch.zeros(3)).item() == 127


def test_the_gradient_is_that_of_the_clipping() -> None:
    x = torch.tensor([0.3, -3.0, 0.013], requires_grad=True)
    rounded(x, 100.0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 0, 1]


@pytest.mark.parametrize("activation", [None, 31.0])
def test_a_rounded_map_equals_a_product_of_integers(activation: float | None) -> None:
    linear = Linear(8, 6).double()
    with torch.no_grad():
        linear.weight.copy_(drawn(6, 8))
        linear.weight[3:] *= 7
    linear.rounding = Rounding(2, activation)
    x = drawn(5, 8, seed=2)
    qa = activation or 127 / x.abs().max().item()
    integers = np.clip(np.rint(x.numpy() * qa), -127, 127).astype(np.int64)
    expected = []
    for rows, bias in zip(linear.weight.chunk(2), linear.bias.chunk(2), strict=True):
        qb = 127 / rows.abs().max().item()
        weight = np.rint(rows.detach().numpy() * qb).astype(np.int64)
        expected.append(integers @ weight.T / (qa * qb) + bias.detach().numpy())
    assert_close(linear(x).detach().numpy(), np.concatenate(expected, 1), rtol=1e-12, atol=1e-12)
