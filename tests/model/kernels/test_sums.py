"""Sums of earlier outputs and their gradients against the formula, summed by autograd."""

import gc
import weakref

import pytest
import torch
from torch.testing import assert_close

from model.drawn import drawn as normal
from nmtdeep.model.kernels.sums import BLOCK, PART, Sums, dot_products

# More outputs than two blocks.
OUTPUTS, SHAPE = 2 * BLOCK + 3, (2, 3, 4)
EXACT = {"rtol": 0, "atol": 1e-11}


def drawn(*shape, seed, dtype=torch.float64):
    return normal(*shape, seed=seed, dtype=dtype).requires_grad_()


def numbers(seed, features=1, dtype=torch.float64):
    """Weights whose sums stay about as large as the outputs."""
    weights = drawn(OUTPUTS, OUTPUTS, features, seed=seed, dtype=dtype).detach()
    return (weights / OUTPUTS).requires_grad_()


def layer(read, number):
    return torch.sin((number + 1) * read)


def ours(x, weights, window, used):
    """Outputs that each read those below, and the sum of the reads in `used`."""
    sums = Sums(weights, x, window=window)
    token = sums.add(x)
    reads = []
    for row in range(OUTPUTS):
        reads.append(sums.read(token))
        if row + 1 < OUTPUTS:
            token = sums.add(layer(reads[-1], row), token)
    return sum(reads[row].square().sum() for row in used)


def formula(x, weights, window, used):
    outputs, reads = [x], []
    for row in range(OUTPUTS):
        seen = range(max(0, row + 1 - (window or OUTPUTS)), row + 1)
        reads.append(sum(weights[row, k] * outputs[k] for k in seen))
        outputs.append(layer(reads[-1], row))
    return sum(reads[row].square().sum() for row in used)


@pytest.mark.parametrize("features", [1, SHAPE[-1]])
@pytest.mark.parametrize("window", [1, BLOCK + 1, None])
@pytest.mark.parametrize("used", [[2], [0, BLOCK + 1], range(OUTPUTS)], ids=str)
def test_values_and_gradients_equal_the_formula(features, window, used):
    inputs = drawn(*SHAPE, seed=1), numbers(2, features)
    result, exact = ours(*inputs, window, used), formula(*inputs, window, used)
    assert_close(result, exact, **EXACT)
    expected = torch.autograd.grad(exact, inputs)
    assert_close(torch.autograd.grad(result, inputs, retain_graph=True), expected, **EXACT)
    # A second pass through the same graph is independent of the first.
    assert_close(torch.autograd.grad(result, inputs), expected, **EXACT)


def test_outputs_and_gradients_in_half_precision():
    count = BLOCK - 1
    outputs = [drawn(*SHAPE, seed=seed, dtype=torch.float32) for seed in range(count)]
    weights = drawn(count, count, 1, seed=9, dtype=torch.float32)
    gradient = drawn(*SHAPE, seed=10, dtype=torch.float32).detach()
    sums, token = Sums(weights, outputs[0], dtype=torch.bfloat16), None
    for output in outputs:
        token = sums.add(output, token)
    result = sums.read(token)
    found = torch.autograd.grad(result, (*outputs, weights), gradient)
    assert all(tensor.dtype == torch.float32 for tensor in (result, *found))
    exact = [output.detach().bfloat16().double() for output in (*outputs, weights[-1], gradient)]
    *rounded, last, slope = exact
    expected = torch.zeros(count, count, 1)
    expected[-1, :, 0] = torch.stack([(output * slope).sum() for output in rounded])
    # What is multiplied is rounded once, sums are rounded at their end: to 8 bits.
    close = {"rtol": 2**-8, "atol": 1e-6, "check_dtype": False}
    assert_close(result.detach(), sum(map(torch.mul, last, rounded)), **close)
    assert_close(list(found), [*(number * slope for number in last), expected], **close)


def test_dot_products_of_long_rows():
    one, other = drawn(3, 2 * PART + 5, seed=1).detach(), drawn(4, 2 * PART + 5, seed=2).detach()
    expected = torch.tensor([[a.dot(b) for b in other] for a in one], dtype=torch.float64)
    assert_close(dot_products(one, other), expected)


def test_fixed_weights_and_a_fixed_input():
    x, weights = drawn(*SHAPE, seed=1), numbers(2)
    (for_x,) = torch.autograd.grad(ours(x, weights.detach(), OUTPUTS, [OUTPUTS - 1]), x)
    (for_weights,) = torch.autograd.grad(ours(x.detach(), weights, OUTPUTS, [OUTPUTS - 1]), weights)
    expected = torch.autograd.grad(formula(x, weights, OUTPUTS, [OUTPUTS - 1]), (x, weights))
    assert_close((for_x, for_weights), expected, **EXACT)


def test_memory_is_freed_with_the_graph():
    gc.disable()
    try:
        sums = Sums(torch.ones(2, 2, 1).double(), x := drawn(*SHAPE, seed=1))
        token = sums.add(x)
        sums.read(token).sum().backward()
        gone = weakref.ref(sums)
        del sums, token
        assert gone() is None
    finally:
        gc.enable()
