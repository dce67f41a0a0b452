"""The atlas trains what its table lacks, and its report is the arithmetic of that table."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Load

Make = Callable[..., Any]
RATES = (0.002, 0.004, 0.008, 0.016)


@pytest.fixture
def row(load: Load) -> Make:
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


def test_the_best_rate_has_worse_neighbors(load: Load, row: Make) -> None:
    tried = rates_of(load, row, lambda lr: 20 + abs(math.log2(lr / 0.004)))
    assert tried == [0.008, 0.004, 0.002]
    tried = rates_of(load, row, lambda lr: 20 + abs(math.log2(lr / 0.016)))
    assert tried == [0.008, 0.004, 0.016, 0.032]
    # Failures count as worst: 400 is the unigram level.
    tried = rates_of(load, row, lambda lr: 390 + lr if lr > 0.0005 else 50 - lr)
    assert tried == [0.008, 0.004, 0.002, 0.001, 0.0005, 0.00025]


def test_the_best_rate_is_bold_unless_every_rate_fails(load: Load, row: Make) -> None:
    rates = (0.00025, 0.0005, 0.001)
    tried = {"pre-norm": (30.0, 20.0, 40.0), "admin": (399.0, 380.0, 450.0)}
    rows = [
        row(plan="tune", method=method, lr=lr, perplexity=value)
        for method, values in tried.items()
        for lr, value in zip(rates, values, strict=True)
    ]
    _, *body = load("atlas_report").rates(rows)
    cells = {method: shown for method, *shown in body}
    assert cells["pre-norm"] == ["30.0", "**20.0**", "40.0"]
    assert cells["admin"] == ["fails", "fails", "fails"]


def test_a_plan_names_each_training_once(load: Load, row: Make) -> None:
    plan = load("atlas_plan")
    assert list(plan.trials("main", [])) == []  # no rate is known
    tunes = ("tune", "tune-muon", "tune-end", "tune-convergence")
    tuned = [
        row(plan=name, method=method, depth=depth, lr=lr, perplexity=20 + abs(lr - 0.004))
        for name in tunes
        for method in plan.PLANS[name].methods
        for depth in plan.PLANS[name].depths
        for lr in RATES
    ]
    assert not [trial for name in tunes for trial in plan.trials(name, tuned)]
    for name in ("main", "long", "end", "end-low", "adam", "convergence", "paper-batch", "growth"):
        methods, depths, seeds = plan.PLANS[name][:3]
        wanted = list(plan.trials(name, tuned))
        assert len(set(wanted)) == len(wanted) == len(methods) * len(depths) * len(seeds)
        assert len({str(trial) for trial in wanted}) == len(wanted)
        # A training that the table has is not trained again, and all others are.
        done = row(**wanted[3]._asdict())
        assert list(plan.trials(name, [*tuned, done])) == [*wanted[:3], *wanted[4:]]


def test_a_search_at_other_depths_begins_with_the_rate_of_the_first(load: Load, row: Make) -> None:
    plan, deep = load("atlas_plan"), load("atlas_methods").Depth(24, 24)
    rows = [row(plan="tune", lr=lr, perplexity=20 + abs(lr - 0.004)) for lr in RATES]
    assert plan.rate("tune-convergence", "pre-norm", deep, rows[1:]) is None  # 0.002 may be better
    tried = []
    while lr := plan.rate("tune-convergence", "pre-norm", deep, rows):
        tried.append(lr)
        perplexity = math.inf if lr > 0.001 else 20 - lr
        rows.append(row(plan="tune-convergence", depth=deep, lr=lr, perplexity=perplexity))
    assert tried == [0.004, 0.002, 0.001, 0.0005]
    assert plan.tuned_rate("pre-norm", deep, rows, "tune-convergence") == 0.001


def test_the_seed_of_the_tuning_is_reported_with_the_others(load: Load, row: Make) -> None:
    rows = [row(plan="tune", lr=lr, perplexity=20 + abs(lr - 0.004)) for lr in RATES]
    at = {"plan": "tune-convergence", "depth": (6, 6)}
    rows += [row(**at, lr=lr, perplexity=20 + abs(lr - 0.004)) for lr in RATES]
    rows += [row(plan="convergence", depth=(6, 6), seed=seed) for seed in (2, 3)]
    found = load("atlas_report").rows_of_plan("convergence", rows)
    assert [(one.seed, one.lr) for one in found] == [(1, 0.004), (2, 0.004), (3, 0.004)]


def test_equal_seconds_are_reported_where_updates_are_timed(
    load: Load, row: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    atlas, table = load("atlas"), load("atlas_table")
    files = ("--results", str(tmp_path / "a.csv"), "--picture", str(tmp_path / "a.svg"))
    grown = table.Trial("growth", "copy", load("atlas_methods").Depth(24, 6), 1, 0.016)
    times = atlas.slower(grown, argparse.Namespace())  # growth is not timed
    atlas.append(tmp_path / "a.csv", row(plan="growth", method="copy", slower=times))
    atlas.append(tmp_path / "a.csv", row(plan="main"))
    atlas.main(["report", *files])
    titles = [line for line in capsys.readouterr().out.splitlines() if line.startswith("##")]
    assert titles == [
        "## main, 12+6, equal tokens",
        "## main, 12+6, equal seconds",
        "## growth, 12+6, equal tokens",
    ]


def test_processes_train_different_methods(load: Load, row: Make, tmp_path: Path) -> None:
    atlas, table = load("atlas"), load("atlas_table")
    options = argparse.Namespace(
        results=tmp_path / "atlas.csv", out=tmp_path, plan=["tune"], only=["admin", "b2t"]
    )
    with atlas.next_trial(options) as first, atlas.next_trial(options) as second:
        assert {first.method, second.method} == {"admin", "b2t"}
        with atlas.next_trial(options) as third:
            assert third is None
    # What ended is free again, and its next rate is another.
    table.append(options.results, row(**first._asdict()))
    with atlas.next_trial(options) as later:
        assert later.method == first.method
        assert later.lr != first.lr


def test_every_method_is_a_valid_recipe(load: Load, tiny_run: Any) -> None:
    methods = load("atlas_methods")
    recipes = [
        methods.recipe(tiny_run.data.path, name, methods.Depth(24, 2), "muon")
        for name in methods.CHOICES
    ]
    assert {one.model.encoder.depth for one in recipes} == {24}
    assert {one.training.optimizer.type for one in recipes} == {"muon"}
    assert len({one.model_dump_json() for one in recipes}) == len(recipes)


def test_a_training_has_the_rate_of_its_trial(load: Load, tiny_run: Any) -> None:
    atlas, depth = load("atlas"), load("atlas_methods").Depth(2, 1)
    for name, plan in atlas.PLANS.items():
        trial = load("atlas_table").Trial(name, plan.methods[0], depth, 3, 0.007)
        training = atlas.recipe_of(trial, tiny_run.data.path, saves=5).training
        schedule = training.schedule
        assert (schedule.lr, schedule.warmup_updates, training.seed) == (0.007, 100, 3)
        assert (schedule.type == "linear") == (name in ("end", "end-low", "tune-end"))


def test_rows_are_read_as_written(load: Load, row: Make, tmp_path: Path) -> None:
    table, path = load("atlas_table"), tmp_path / "new" / "atlas.csv"
    assert table.read(path) == []
    rows = [row(curve=[[90, 100.5], [180, 20.25]], bleu_valid=20.5, bleu_test=21.5), row(seed=2)]
    for one in rows:
        table.append(path, one)
    found = table.read(path)
    assert [one.cells() for one in found] == [one.cells() for one in rows]
    assert (found[0].depth.encoder, found[0].curve[1], found[0].seconds) == (12, [180, 20.25], 1.5)
    assert table.perplexity_at([(90, 100.0), (180, 25.0)], 135) == pytest.approx(50.0)


# t of the 5 % level, two-sided, by degrees of freedom: any table of Student's t.
@pytest.mark.parametrize(
    ("degrees", "t"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (8, 2.3060)]
)
def test_p_is_that_of_students_t(load: Load, degrees: int, t: float) -> None:
    n = degrees + 1
    values = [float(k) for k in range(n)]
    mean, variance = (n - 1) / 2, n * (n + 1) / 12  # of 0 to n - 1, sample variance
    shift = t * math.sqrt(variance / n) - mean
    p = load("atlas_report").p_value([value + shift for value in values])
    assert p == pytest.approx(0.05, abs=1e-5)


def test_a_cell_has_mean_deviation_and_failures(load: Load, row: Make) -> None:
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


def test_holm_counts_the_comparisons_that_are_left(load: Load) -> None:
    # By hand, smallest first: 3 * 0.01, 2 * 0.03, and 0.04, which must not be below that.
    adjusted = load("atlas_report").holm([0.04, math.nan, 0.01, 0.03])
    assert adjusted == pytest.approx([0.06, math.nan, 0.03, 0.06], nan_ok=True)
    assert load("atlas_report").holm([0.9, 0.8]) == [1.0, 1.0]


def test_what_is_missing_is_timed_trained_and_reported(
    load: Load, row: Make, tiny_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    atlas, results, speed = load("atlas"), tmp_path / "a.csv", tmp_path / "s.csv"
    for lr in RATES:
        atlas.append(
            results,
            row(plan="tune-muon", method="dense-pre", lr=lr, perplexity=1 + abs(lr - 0.004)),
        )
    depth = load("atlas_methods").Depth(2, 1)
    main = atlas.PLANS["main"]._replace(seeds=(1,), updates=4, every=2)
    main = main._replace(methods=("dense-pre", "admin"), depths=(depth,))
    files = ("--results", str(results), "--speed", str(speed))
    words = ("--data", str(tiny_run.data.path), "--out", str(tmp_path / "runs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(atlas.PLANS, "main", main)
        patch.setitem(atlas.PLANS, "long", main._replace(updates=6, begins_as="main"))
        patch.setattr("atlas_table.FAILS_FROM", math.inf)  # it learns nothing in four updates
        for _ in range(2):
            atlas.main(["run", *words, *files, "--plan", "long", "main"])
    *_, beginning, trained = atlas.read(results)
    assert [row.plan for row in atlas.read(results)[len(RATES) :]] == ["main", "long"]
    assert {(row.method, row.lr) for row in (beginning, trained)} == {("dense-pre", 0.004)}
    assert [update for update, _ in trained.curve] == [2, 4, 6]
    assert trained.curve[:2] == beginning.curve
    assert trained.perplexity == pytest.approx(trained.curve[-1][1], rel=1e-5)
    assert trained.equal_updates == min(6, round(6 / trained.slower))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["locks"]
    capsys.readouterr()
    assert trained.bleu_valid >= 0
    atlas.main(["report", *files, "--picture", str(tmp_path / "a.svg")])
    assert "| dense-pre | 1.0 | **1.0** | 1.0 |" in capsys.readouterr().out
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<?xml")
