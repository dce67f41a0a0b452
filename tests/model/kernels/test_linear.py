"""Linear maps through oneDNN against torch's own."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from model.drawn import drawn
from nmtdeep.model.kernels import linear

SHAPES = pytest.mark.parametrize("shape", [(7,), (2, 5), (3, 1), (0,)], ids=str)


def inputs_of(*shapes, dtype=torch.float32):
    return [drawn(*shape, seed=len(shape), dtype=dtype).requires_grad_() for shape in shapes]


def with_gradients(y, *inputs):
    towards = torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)
    return y, *torch.autograd.grad(y, inputs, towards)


@SHAPES
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_and_gradients_equal_those_of_torch(shape, relu, dtype):
    inputs = inputs_of((*shape, 33), (18, 33), (18,), dtype=dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    y = F.linear(*exact)
    expected = with_gradients(y.relu() if relu else y, *exact)
    results = with_gradients(linear(*inputs, relu=relu), *inputs)
    for tensor, reference in zip(results, expected, strict=True):
        assert tensor.dtype == dtype
        assert_close(tensor.double(), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("relu", [False, True])
def test_autocast_rounds_inputs_and_results(relu):
    inputs = inputs_of((4, 6, 32), (16, 32), (16,))
    exact = [tensor.detach().bfloat16().double().requires_grad_() for tensor in inputs]
    y = F.linear(*exact)
    expected = with_gradients(y.relu() if relu else y, *exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = linear(*inputs, relu=relu)
    assert y.dtype == torch.bfloat16
    assert_close(y.double(), expected[0], rtol=2**-8, atol=2**-8)
    for tensor, reference in zip(with_gradients(y, *inputs)[1:], expected[1:], strict=True):
        assert tensor.dtype == torch.float32
        assert_close(tensor.double(), reference, rtol=2**-6, atol=2**-4)


def test_rows_of_a_larger_weight_and_strided_input():
    weight, x = inputs_of((12, 8), (4, 6, 8))
    part, every_other = weight[3:7], x[:, ::2].transpose(0, 1)
    expected = with_gradients(F.linear(every_other, part), x, weight)
    assert_close(
        with_gradients(linear(every_other, part), x, weight), expected, rtol=1e-5, atol=1e-5
    )


def test_only_wanted_gradients_are_computed():
    (weight,) = inputs_of((3, 4))
    y = linear(torch.ones(2, 4), weight)
    assert_close(torch.autograd.grad(y.sum(), weight)[0], torch.full((3, 4), 2.0))
