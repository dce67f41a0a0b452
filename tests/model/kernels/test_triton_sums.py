"""Triton's kernels of sums, on its interpreter, against float64 sums written out."""

from unittest import mock

import pytest
import torch
from torch.testing import assert_close

from model.kernels.test_sums import OUTPUTS, drawn, formula, numbers, ours
from nmtdeep.model.kernels import sums

pytest.importorskip("triton", reason="Triton is not installed")
from model.kernels.interpreted import interpreted
from nmtdeep.model.kernels import triton_sums

DTYPES = [torch.float32, torch.bfloat16]
# Rows longer than one program's share, and not a multiple of what is read at once.
LENGTH = triton_sums.BLOCK.value + 77
# Sums in fp32, and their first 8 bits: the interpreter does not round, a GPU does.
CLOSE = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 2**-7, "atol": 1e-5}}


@pytest.fixture(autouse=True)
def _interpreted():
    with interpreted((triton_sums, "_sum")):
        yield


def rows(count, length, seed, dtype):
    return drawn(count, length, seed=seed).detach().to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("results", "count"), [(1, 1), (1, 6), (2, 5), (3, 40), (5, 4), (6, 30)])
def test_weighted_sums(results, count, given, dtype):
    values, begin = rows(count, LENGTH, 1, given), rows(results, LENGTH, 2, given)
    square = drawn(count + 2, results + 1, seed=3, dtype=torch.float32).detach()
    weights = square[1:-1, 1:].T  # a transposed part, as for gradients
    for share, each in ((weights, begin), (weights.contiguous(), None)):
        found = triton_sums.weighted_sums(share[:, :, None], values, each, dtype)
        assert found.dtype == dtype
        exact = torch.zeros(results, LENGTH, dtype=torch.float64)
        for r in range(results):
            for k in range(count):
                exact[r] += weights[r, k].double() * values[k].double()
        exact = exact if each is None else exact + each.double()
        assert_close(found.double(), exact, **CLOSE[dtype])


@pytest.mark.parametrize("window", [2, None])
@pytest.mark.parametrize("used", [[2], range(OUTPUTS)], ids=str)
def test_sums_and_gradients_equal_the_formula(window, used):
    inputs = drawn(2, 3, 4, seed=1, dtype=torch.float32), numbers(2, dtype=torch.float32)
    with mock.patch.object(sums, "is_fused", lambda *_: True):
        result = ours(*inputs, window, used)
        found = torch.autograd.grad(result, inputs)
    assert result.dtype == torch.float32
    exact_inputs = [each.detach().double().requires_grad_() for each in inputs]
    exact = formula(*exact_inputs, window, used)
    expected = torch.autograd.grad(exact, exact_inputs)
    assert_close((result, *found), (exact, *expected), rtol=1e-4, atol=1e-4, check_dtype=False)


def test_numbers_stay_in_half_precision_only_where_they_are_kept():
    """Weights are not rounded, and neither are sums in the dtype of what is read."""
    outputs = rows(4, 64, 1, torch.float32)
    weights = drawn(4, 4, 1, seed=2, dtype=torch.float32)
    with mock.patch.object(sums, "is_fused", lambda *_: True):
        state = sums.Sums(weights, outputs[0], dtype=torch.bfloat16)
        for output in outputs:
            state.append(output)
        read = state.newest()
    rounded = outputs.bfloat16().double()
    exact = sum(weights[3, k, 0].double() * rounded[k] for k in range(4))
    assert_close(read.double(), exact, rtol=1e-6, atol=1e-6)
