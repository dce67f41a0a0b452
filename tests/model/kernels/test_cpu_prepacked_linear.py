"""Packed linear maps against the plain product; a packed model computes what it computed before."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from model.choices import DECODERS
from model.drawn import drawn
from nmtdeep.model.kernels.cpu_prepacked_linear import PackedLinear, QuantizedLinear, pack
from nmtdeep.testing import SOURCE, TARGET

VNNI = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()
SHAPES = [(1, 8), (2, 5, 8)]


@pytest.mark.parametrize(("bias", "relu"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-6), (torch.bfloat16, 0.02)])
def test_packed_equals_the_product(dtype, error, shape, bias, relu):
    weight, b = drawn(11, 8, dtype=dtype), drawn(11, seed=2, dtype=dtype) if bias else None
    if not PackedLinear.supports(weight):
        pytest.skip("not with this torch or processor")
    x = drawn(*shape, seed=3, dtype=dtype)
    expected = F.linear(x.double(), weight.double(), None if b is None else b.double())
    expected = expected.relu() if relu else expected
    result = PackedLinear(weight, b, relu=relu)(x)
    assert result.dtype == dtype
    assert_close(result.double(), expected, rtol=error, atol=error)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8_is_within_the_rounding_of_its_numbers(shape, bias):
    weight, b = drawn(11, 8).float(), drawn(11, seed=2).float() if bias else None
    weight[3] *= 100  # has a scale of its own
    weight[4] = 0
    if not QuantizedLinear.supports(weight):
        pytest.skip("not with this torch")
    x = drawn(*shape, seed=3).float()
    # Each weight is off by half a step at most, so is each input; the products of both are too.
    weight_step = weight.abs().amax(dim=1) / 127
    x_step = (x.amax().clamp(min=0) - x.amin().clamp(max=0)) / (255 if VNNI else 127)
    bound = (
        x.abs().sum(dim=-1)[..., None] * weight_step / 2
        + weight.abs().sum(dim=1) * x_step / 2
        + 8 * weight_step * x_step / 4
    )
    exact = F.linear(x, weight, b)
    off = (QuantizedLinear(weight, b)(x) - exact).abs()
    assert (off <= bound + 1e-5).all()
    off = (QuantizedLinear(weight, b, relu=True)(x) - exact.relu()).abs()
    assert (off <= bound + 1e-5).all()
    assert off.max() > 0


def stepwise(model):
    state = model.start(model.encode(SOURCE))
    return torch.stack([model.step(tokens, state) for tokens in TARGET.T], dim=1)


@pytest.mark.parametrize("sublayers", DECODERS, ids=str)
@pytest.mark.parametrize(("kind", "error"), [(PackedLinear, 1e-5), (QuantizedLinear, 0.3)])
def test_packing_changes_rounding_only(kind, error, sublayers, tiny_model):
    model = tiny_model(seed=4, sublayers=sublayers, dtype=torch.float32)
    with torch.inference_mode():
        before = stepwise(model)
        if not pack(model, kind):
            pytest.skip("not with this torch or processor")
        assert not any(isinstance(module, nn.Linear) for module in model.modules())
        after, parallel = stepwise(model), model.output(model(SOURCE, TARGET))
    assert (after - before).norm() < error * before.norm()
    assert (after - parallel).norm() < error * before.norm()
    assert not torch.equal(after, before) or kind is PackedLinear


def test_a_model_that_cannot_be_packed_is_left_alone(tiny_model):
    model = tiny_model(seed=4)  # float64
    before = stepwise(model)
    assert not pack(model, PackedLinear)
    assert not pack(model, QuantizedLinear)
    assert_close(stepwise(model), before, rtol=0, atol=0)
