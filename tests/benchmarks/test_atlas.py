"""The statistics and the search on which the sentences of docs/atlas.md rest."""

import importlib
import math
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def atlas():
    """By name: the modules atlas_plan and atlas_report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        names = ("atlas_plan", "atlas_report")
        yield {name: importlib.import_module(name) for name in names}


def test_interval_and_p_of_three_differences(atlas):
    """Mean 2, deviation 1: 2 -+ 4.303 / sqrt 3, and t = 2 sqrt 3 with two degrees of freedom.

    With two degrees P(|T| > t) = 1 - t / sqrt(t^2 + 2).
    """
    report = atlas["atlas_report"]
    half = 4.30265 / math.sqrt(3)
    assert report.interval([1.0, 2.0, 3.0]) == pytest.approx((2 - half, 2 + half), rel=1e-5)
    expected = 1 - math.sqrt(12 / 14)
    assert report.p_value([1.0, 2.0, 3.0]) == pytest.approx(expected, rel=1e-9)


def test_holm_multiplies_by_the_comparisons_that_are_left(atlas):
    adjusted = atlas["atlas_report"].holm([0.01, 0.04, 0.03, math.nan])
    assert adjusted[:3] == pytest.approx([0.03, 0.06, 0.06]) and math.isnan(adjusted[3])


def row(atlas, lr, perplexity):
    plan = atlas["atlas_plan"]
    unset = dict.fromkeys(plan.Row.__dataclass_fields__)
    of = {"method": "pre-norm", "depth": plan.TUNED_AT, "plan": "tune", "seed": 1}
    return plan.Row(**unset | of | {"lr": lr, "perplexity": perplexity, "unigram": 400.0})


def test_the_search_ends_when_the_best_rate_has_worse_neighbors(atlas):
    perplexities, tried = {2e-3: 70.0, 4e-3: 50.0, 8e-3: 60.0, 16e-3: math.inf}, []
    search = atlas["atlas_plan"].next_rate
    while lr := search("pre-norm", tried):
        tried.append(row(atlas, lr, perplexities[lr]))
    assert [one.lr for one in tried] == [8e-3, 4e-3, 2e-3]
    assert atlas["atlas_plan"].best_rate("pre-norm", tried) == 4e-3


def test_the_search_of_a_longer_training_goes_only_down(atlas):
    perplexities, tried = {4e-3: 60.0, 8e-3: 50.0}, []
    search = atlas["atlas_plan"].next_rate
    while lr := search("pre-norm", tried, (8e-3,), 8e-3):
        tried.append(row(atlas, lr, perplexities[lr]))
    assert [one.lr for one in tried] == [8e-3, 4e-3]


def test_plans_report_no_seed_of_a_search_where_they_say_so(atlas):
    plans = atlas["atlas_plan"].PLANS
    for name in ("adam", "convergence", "end", "end-post", "depth", "seconds"):
        searched = plans[plans[name].tuned_by].seeds
        assert not {*searched} & {*plans[name].seeds}, name
