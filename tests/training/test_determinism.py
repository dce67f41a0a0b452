"""Determinism on a GPU; tests/commands/test_determinism.py is for CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from nmtdeep.config.training import Training
from nmtdeep.data.batch import Batch, Share
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.step import Step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SIZES = {"width": 64, "feed_forward": 128, "dropout": 0.1, "dtype": torch.float32}


@pytest.fixture
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch's own setting, as in docs/reliability.md."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def trained(model: Transformer, batch: Batch, precision: torch.dtype) -> dict[str, torch.Tensor]:
    """The weights after five updates on a GPU."""
    model = model.cuda()
    step = Step(model, Training(), dtype=precision)
    share = Share.whole([batch.to(torch.device("cuda"))])
    for update in range(1, 6):
        step.update(share, update, 1e-3)
    return {name: value.detach().cpu() for name, value in model.named_parameters()}


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.usefixtures("deterministic")
def test_the_same_updates_twice_give_the_same_bytes(
    precision: torch.dtype,
    tiny_model: Callable[..., Transformer],
    make_batch: Callable[..., Batch],
) -> None:
    ids = [[3 + (7 * row + place) % 17 for place in range(5 + row % 20)] for row in range(200)]
    batch = make_batch(
        [[*sentence, 1] for sentence in ids], [[*reversed(sentence), 1] for sentence in ids]
    )
    first, second = (trained(tiny_model(**SIZES), batch, precision) for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
