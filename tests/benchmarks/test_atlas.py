"""The arithmetic of the atlas: rates that are tried, interpolation, tests of differences."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Load

Make = Callable[..., Any]


@pytest.fixture
def row(load):
    """`row(seed=2)`: a row of the table; what is not given is of no importance."""
    table = load("atlas_table")

    def make(**given: Any) -> Any:
        depth = load("atlas_methods").Depth(*given.pop("depth", (12, 6)))
        values = {"plan": "main", "method": "pre-norm", "seed": 1, "lr": 0.004, "updates": 900}
        values |= {"target_tokens": 1000, "seconds": 1.5, "unigram": 400.0, "perplexity": 20.0}
        values |= {"slower": 1.0, "equal_updates": 900, "equal_perplexity": 20.0, "curve": []}
        values |= {"precision": "bf16", "date": "2026-11-23", "commit": "0", "torch": "2"}
        return table.Row(**values | given, depth=depth)

    return make


def rates_of(load: Load, row: Make, perplexity: Callable[[float], float]) -> list[float]:
    """The rates that are tried, in order, where a rate gives this perplexity."""
    plan, rows = load("atlas_plan"), []
    while lr := plan.next_rate("pre-norm", rows):
        rows.append(row(plan="tune", lr=lr, perplexity=perplexity(lr)))
    assert plan.best_rate("pre-norm", rows) == min((one.lr for one in rows), key=perplexity)
    return [one.lr for one in rows]


def test_the_best_rate_has_worse_neighbors(load, row):
    tried = rates_of(load, row, lambda lr: 20 + abs(math.log2(lr / 0.004)))
    assert tried == [0.008, 0.004, 0.002]
    tried = rates_of(load, row, lambda lr: 20 + abs(math.log2(lr / 0.016)))
    assert tried == [0.008, 0.004, 0.016, 0.032]
    # Failures count as worst: 400 is the unigram level.
    tried = rates_of(load, row, lambda lr: 390 + lr if lr > 0.0005 else 50 - lr)
    assert tried == [0.008, 0.004, 0.002, 0.001, 0.0005, 0.00025]


# t of the 5 % level, two-sided, by degrees of freedom: any table of Student's t.
@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (8, 2.3060)]
)
def test_p_is_that_of_students_t(load, degrees, t):
    n = degrees + 1
    values = [float(k) for k in range(n)]
    mean, variance = (n - 1) / 2, n * (n + 1) / 12  # of 0 to n - 1, sample variance
    shift = t * math.sqrt(variance / n) - mean
    p = load("atlas_report").p_value([value + shift for value in values])
    assert p == pytest.approx(0.05, abs=1e-5)


def test_a_cell_has_mean_deviation_and_failures(load, row):
    report = load("atlas_report")
    plain = [row(seed=seed, perplexity=20.0, bleu_test=20.0 + seed) for seed in (1, 2, 3)]
    better = [row(method="admin", seed=seed, bleu_test=21 + 2 * seed) for seed in (1, 2)]
    better.append(row(method="admin", seed=3, perplexity=399.0))
    headings, of_plain, of_better = report.comparison(
        {"pre-norm": plain, "admin": better}, report.TOKENS
    )
    cells = dict(zip(headings[5:], zip(of_plain[5:], of_better[5:], strict=True), strict=True))
    assert cells["BLEU, test"] == ("**22.00 ± 1.00**", "24.00 ± 1.41 (1 of 3 fail)")
    # Differences of 2 and 3: t = 2.5 / 0.5 = 5 with one degree, p = 1 - 2 atan(5) / pi.
    p = f"{1 - 2 * math.atan(5) / math.pi:.3f}"
    assert cells["p, Holm"] == ("-, -", f"{p}, {p}")
    # 12.706 is the 5 % level of t with one degree: 2.5 -+ 12.706 * 0.5.
    assert cells["against pre-norm, 95 %"] == ("-", "+2.50 (-3.85 to +8.85)")


def test_holm_counts_the_comparisons_that_are_left(load):
    # By hand, smallest first: 3 * 0.01, 2 * 0.03, and 0.04, which must not be below that.
    adjusted = load("atlas_report").holm([0.04, math.nan, 0.01, 0.03])
    assert adjusted == pytest.approx([0.06, math.nan, 0.03, 0.06], nan_ok=True)
    assert load("atlas_report").holm([0.9, 0.8]) == [1.0, 1.0]


def test_the_logarithm_of_perplexity_is_interpolated(load):
    curve = [(90, 100.0), (180, 25.0)]
    assert load("atlas_table").perplexity_at(curve, 135) == pytest.approx(50.0)
