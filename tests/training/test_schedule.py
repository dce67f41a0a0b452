"""Learning rates by hand."""

from __future__ import annotations

import pytest

from nmtdeep.config.training import InverseSquareRoot, Linear, Noam
from nmtdeep.training.schedule import inverse_square_root, learning_rate, linear, noam

WANG = {"peak": 2e-3, "warmup_updates": 16_000, "warmup_init": 1e-7}


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (1, 1e-7),  # fairseq: the first update runs at warmup-init-lr
        (2, 1e-7 + (2e-3 - 1e-7) / 16_000),
        (8_001, (2e-3 + 1e-7) / 2),
        (16_001, 2e-3),
        (64_001, 1e-3),  # four times the warm-up: half the peak
        (1_600_001, 2e-4),
    ],
)
def test_inverse_square_root(update: int, expected: float) -> None:
    assert inverse_square_root(update, **WANG) == pytest.approx(expected, rel=1e-12)


def test_warm_up_meets_the_decay_without_a_jump() -> None:
    step = (2e-3 - 1e-7) / 16_000
    rates = [inverse_square_root(update, **WANG) for update in (16_000, 16_001, 16_002)]
    assert rates[1] - rates[0] == pytest.approx(step, rel=1e-9)
    # The slope of peak sqrt(W / u) at u = W is -peak / 2W.
    assert rates[2] - rates[1] == pytest.approx(-2e-3 / 32_000, rel=1e-3)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (1, 1.746928e-7),  # 512^-0.5 4000^-1.5
        (4000, 6.987712e-4),  # the peak, 512^-0.5 4000^-0.5
        (16_000, 3.493856e-4),
        (100_000, 1.397542e-4),
    ],
)
def test_noam(update: int, expected: float) -> None:
    rate = noam(update, scale=1.0, warmup_updates=4000, width=512)
    assert rate == pytest.approx(expected, rel=1e-6)


def test_noam_peaks_where_warm_up_ends() -> None:
    rates = [noam(update, scale=1.0, warmup_updates=50, width=64) for update in range(1, 200)]
    assert rates.index(max(rates)) + 1 == 50
    assert rates[49] == pytest.approx(1 / (8 * 50**0.5))


def test_the_recipes_numbers_arrive() -> None:
    inverse = InverseSquareRoot(lr=3.0, warmup_updates=4, warmup_init_lr=1.0)
    assert [
        learning_rate(inverse, update, width=99, max_updates=50) for update in (1, 2, 3, 5, 17)
    ] == [
        1.0,
        1.5,
        2.0,
        3.0,
        1.5,
    ]
    scaled = Noam(scale=8.0, warmup_updates=4)
    assert [
        learning_rate(scaled, update, width=16, max_updates=50) for update in (1, 2, 4, 16)
    ] == [
        0.25,
        0.5,
        1.0,
        0.5,
    ]
    straight = Linear(lr=2.0, warmup_updates=4)
    assert [
        learning_rate(straight, update, width=99, max_updates=11) for update in (1, 4, 6, 8, 11)
    ] == [0.5, 2.0, 1.5, 1.0, 0.25]


def test_linear_reaches_zero_after_the_last_update() -> None:
    rates = [linear(update, peak=3.0, warmup_updates=2, max_updates=5) for update in range(1, 8)]
    assert rates == pytest.approx([1.5, 3.0, 2.25, 1.5, 0.75, 0.0, 0.0])


def test_a_restarted_linear_schedule_falls_over_the_updates_that_remain() -> None:
    # At update 10 of 16 with a warm-up of 4, the schedule goes back to 4 updates done: it is at its
    # peak, and seven steps later, after update 16, at zero.
    straight = Linear(lr=7.0, warmup_updates=4)
    rates = [
        learning_rate(straight, update, width=99, max_updates=16, offset=6)
        for update in range(10, 18)
    ]
    assert rates == pytest.approx([7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
