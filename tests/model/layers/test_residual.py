"""Where the norm stands, by hand: the norm of (1, 3) is (-1, 1)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nmtdeep.model.layers.context import Context, State, Sublayer
from nmtdeep.model.layers.residual import PostNorm, PreNorm, Residual


class Double(Sublayer):
    """2 x."""

    def forward(self, x: Tensor, context: Context, state: State | None = None) -> Tensor:
        return 2 * x


def wrap(kind: type[Residual], dropout: float = 0.0) -> Residual:
    norm = nn.LayerNorm(2, eps=0.0, dtype=torch.float64)
    return kind(Double(), norm, dropout=dropout)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (PreNorm, [1 + 2 * -1, 3 + 2 * 1]),
        (PostNorm, [-1, 1]),  # the norm of (1 + 2, 3 + 6)
    ],
)
def test_by_hand(kind: type[Residual], expected: list[float]) -> None:
    x = torch.tensor([[[1.0, 3.0]]], dtype=torch.float64)
    assert wrap(kind)(x, Context())[0, 0].tolist() == expected


def test_dropout_meets_the_sublayers_output_only() -> None:
    x = torch.tensor([1.0, 3.0], dtype=torch.float64).expand(1, 200, 2)
    torch.manual_seed(1)
    added = wrap(PreNorm, 0.5).train()(x, Context()) - x
    assert {tuple(row) for row in added[0].tolist()} == {(0, 0), (0, 4), (-4, 0), (-4, 4)}
    normed = wrap(PostNorm, 0.5).train()(x, Context())[0]
    # x plus (0 or 4, 0 or 12) is (1, 3), (5, 3), (1, 15) or (5, 15): the first is larger once.
    assert {tuple(row) for row in normed.tolist()} == {(-1, 1), (1, -1)}
