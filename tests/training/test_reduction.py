"""Gradients are summed over ranks, whatever order they arrive in and whichever ranks have some."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nmtdeep.training.ranks import Ranks
from nmtdeep.training.reduction import GradientSum
from training.in_ranks import in_ranks

INPUTS = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def network() -> nn.Sequential:
    """Two maps that share their matrix, and one that is not trained."""
    torch.manual_seed(2)
    maps = [nn.Linear(4, 4, dtype=torch.float64) for _ in range(3)]
    maps[2].weight = maps[0].weight
    maps[1].requires_grad_(False)
    return nn.Sequential(*maps)


def gradients(ranks: Ranks, bucket: int, passes: list[int]) -> list[Tensor]:
    """The sums after as many backward passes as this rank's of `passes`, in a second update too."""
    model = network()
    summed = GradientSum(model.parameters(), ranks, bucket)
    for _ in range(2):
        model.zero_grad()
        for number in range(passes[ranks.rank]):
            loss = model(INPUTS[number]).square().sum() * (ranks.rank + 1)
            if number == passes[ranks.rank] - 1:
                summed.start()
            loss.backward()
        summed.finish()
    return [each.grad for each in model.parameters() if each.grad is not None]


@pytest.mark.parametrize("passes", [[1, 1, 1], [3, 2, 1], [0, 2, 1]], ids=str)
@pytest.mark.parametrize("bucket", [1, 200])
def test_sums_equal_those_of_one_rank(passes: list[int], bucket: int) -> None:
    model = network()
    for rank, count in enumerate(passes):
        for number in range(count):
            (model(INPUTS[number]).square().sum() * (rank + 1)).backward()
    expected = [each.grad for each in model.parameters() if each.grad is not None]
    result = in_ranks(3, gradients, bucket, passes)
    assert len(result) == len(expected) == 3
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=0)
