"""Positions of the norm, by hand: the norm of (1, 3) is (-1, 1)."""

import math

import pytest
import torch
from torch import nn

from nmtdeep.model.layers.residual import (
    Admin,
    DeepNorm,
    NoNorm,
    NormalizedResidual,
    PostNorm,
    PreNorm,
    ReZero,
    deep_norm_scales,
)
from nmtdeep.model.layers.sublayer import Context, Sublayer


class Double(Sublayer):
    """2 x."""

    def forward(self, x, context, state=None):
        return 2 * x


def wrap(kind, dropout=0.0):
    norm = nn.LayerNorm(2, eps=0.0, dtype=torch.float64)
    return kind(Double(), norm, dropout=dropout)


def weighted(kind, value):
    """A wrapper with a parameter, set to `value`."""
    wrapper = wrap(kind) if issubclass(kind, Admin) else kind(Double(), dropout=0.0)
    with torch.no_grad():
        for parameter, start in list(wrapper.init_constants()):
            assert parameter.shape == start.shape
            parameter.copy_(torch.tensor(value))
    return wrapper.double()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: wrap(PreNorm), [1 + 2 * -1, 3 + 2 * 1]),
        (lambda: wrap(PostNorm), [-1, 1]),  # the norm of (1 + 2, 3 + 6)
        (lambda: wrap(NormalizedResidual), [-1 + 2 * -1, 1 + 2 * 1]),
        (lambda: NoNorm(Double(), dropout=0.0), [1 + 2, 3 + 6]),
        (lambda: weighted(ReZero, [0.5]), [1 + 1, 3 + 3]),
        (lambda: weighted(Admin, [5.0, 1.0]), [-1, 1]),  # the norm of (5 + 2, 3 + 6)
        (lambda: weighted(Admin, [9.0, 1.0]), [1, -1]),  # the norm of (9 + 2, 3 + 6)
        (
            lambda: DeepNorm(Double(), nn.LayerNorm(2, eps=0.0).double(), alpha=-3.0, dropout=0.0),
            [1, -1],  # the norm of (-3 + 2, -9 + 6)
        ),
    ],
    ids=["pre", "post", "normalized", "none", "rezero", "admin", "admin more", "deep"],
)
def test_by_hand(make, expected):
    x = torch.tensor([[[1.0, 3.0]]], dtype=torch.float64)
    assert make()(x, Context())[0, 0].tolist() == pytest.approx(expected, abs=1e-12)


def test_wrappers_with_a_weight_start_as_the_identity_and_as_post_norm():
    starts = [dict(weighted(kind, 0.0).init_constants()) for kind in (ReZero, Admin)]
    assert [[value.tolist() for value in start.values()] for start in starts] == [[[0]], [[1, 1]]]


@pytest.mark.parametrize(("n", "m"), [(6, 6), (18, 18), (30, 6)])
def test_scales_of_deep_norm(n, m):
    (alpha_e, beta_e), (alpha_d, beta_d) = deep_norm_scales(n, m)
    assert math.log(alpha_e / 0.81) == pytest.approx((4 * math.log(n) + math.log(m)) / 16)
    assert alpha_e * beta_e == pytest.approx(0.81 * 0.87)
    assert (alpha_d**4, beta_d**-4) == pytest.approx((3 * m, 12 * m))


def test_dropout_applies_to_the_output_of_the_sublayer_only():
    x = torch.tensor([1.0, 3.0], dtype=torch.float64).expand(1, 200, 2)
    torch.manual_seed(1)
    added = wrap(PreNorm, 0.5).train()(x, Context()) - x
    assert {tuple(row) for row in added[0].tolist()} == {(0, 0), (0, 4), (-4, 0), (-4, 4)}
    normed = wrap(PostNorm, 0.5).train()(x, Context())[0]
    # x plus (0 or 4, 0 or 12) is (1, 3), (5, 3), (1, 15) or (5, 15): the first is larger once.
    assert {tuple(row) for row in normed.tolist()} == {(-1, 1), (1, -1)}
