"""A packed model computes what it computed before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from nmtdeep.model.kernels.packed import PackedLinear, QuantizedLinear, pack
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import PAD
from tests.model.choices import DECODERS

SOURCE = torch.tensor([[5, 9, 4, 7, 1], [8, 3, 1, PAD, PAD]])
TARGET = torch.tensor([[1, 6, 5, 19], [1, 12, 7, 4]])


def stepwise(model: Transformer) -> Tensor:
    state = model.start(model.encode(SOURCE))
    return torch.stack([model.step(tokens, state) for tokens in TARGET.T], dim=1)


@pytest.mark.parametrize("sublayers", DECODERS, ids=str)
@pytest.mark.parametrize(("kind", "error"), [(PackedLinear, 1e-5), (QuantizedLinear, 0.3)])
def test_packing_changes_rounding_only(
    kind: type[PackedLinear] | type[QuantizedLinear],
    error: float,
    sublayers: tuple[object, ...],
    tiny_model: Callable[..., Transformer],
) -> None:
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


def test_a_model_that_cannot_be_packed_is_left_alone(
    tiny_model: Callable[..., Transformer],
) -> None:
    model = tiny_model(seed=4)  # float64
    before = stepwise(model)
    assert not pack(model, PackedLinear)
    assert not pack(model, QuantizedLinear)
    assert_close(stepwise(model), before, rtol=0, atol=0)
