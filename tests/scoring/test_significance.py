"""p is 1 for no difference and small for a large one; the same seed gives the same numbers."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from nmtdeep.scoring import score_texts
from nmtdeep.scoring.significance import Comparison, compare_systems

from .conftest import damage

TESTS = ("bootstrap", "randomization")


def compare(
    baseline: list[str], other: list[str], reference: list[str], metric: str = "bleu", **options
) -> list[Comparison]:
    return compare_systems(
        ("first", baseline), [("second", other)], [reference], [metric], **options
    )


@pytest.fixture(scope="module")
def corpus(german: list[str]) -> tuple[list[str], list[str], list[str]]:
    reference = german[:300]
    return damage(reference, every=6), damage(reference, every=2), reference


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("metric", ["bleu", "bleu-tok", "chrf", "ter"])
def test_identical_and_much_worse(corpus, test: str, metric: str) -> None:
    better, worse, reference = corpus
    _, same = compare(better, better, reference, metric, test=test, trials=200)
    assert (same.p_value, same.difference) == (1.0, 0.0)
    first, second = compare(better, worse, reference, metric, test=test, trials=200)
    assert first.p_value is None
    assert second.p_value == pytest.approx(1 / 201)  # not one sample of 200 is as extreme
    assert (second.difference < 0) == (metric != "ter")


def test_values_equal_those_of_the_metric(corpus) -> None:
    better, worse, reference = corpus
    comparisons = compare_systems(
        ("a", better), [("b", worse), ("c", better)], [reference], ["bleu", "bleu-intl", "ter"]
    )
    scores = [
        score.value
        for metric in ("bleu", "bleu-intl", "ter")
        for lines in (better, worse, better)
        for score in score_texts(lines, [reference], [metric])
    ]
    assert [comparison.value for comparison in comparisons] == scores
    assert [c.system for c in comparisons] == ["a", "b", "c"] * 3
    assert [c.metric for c in comparisons[::3]] == ["bleu", "bleu-intl", "ter"]


@pytest.mark.parametrize("test", TESTS)
def test_same_seed_same_numbers(corpus, test: str) -> None:
    better, _, reference = corpus
    other = damage(reference, every=7)  # as good: p is neither end of the scale
    runs = [
        compare(better, other, reference, test=test, trials=300, seed=seed) for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0][1].p_value != runs[2][1].p_value
    assert "seed:1|" in runs[0][1].signature
    key = "bs" if test == "bootstrap" else "ar"
    assert f"{key}:300|" in runs[0][1].signature


def test_bootstrap_equals_a_slow_one(corpus) -> None:
    """TER by hand-made resampling: the score of a sample is its edits over its words."""
    better, _, reference = corpus
    other = damage(reference, every=7)
    _, compared = compare(better, other, reference, "ter", trials=2000)
    counts = []
    for lines in (better, other):
        per_line = [
            score_texts([line], [[right]], ["ter"])[0].details
            for line, right in zip(lines, reference, strict=True)
        ]
        counts.append(np.array([(line["edits"], line["reference_length"]) for line in per_line]))
    generator = random.Random(0)
    differences = []
    for _ in range(2000):
        drawn = generator.choices(range(len(reference)), k=len(reference))
        totals = [count[drawn].sum(axis=0) for count in counts]
        differences.append(abs(100 * (totals[1][0] / totals[1][1] - totals[0][0] / totals[0][1])))
    centered = np.array(differences) - np.mean(differences)
    expected = np.mean(centered > abs(compared.difference))
    assert compared.p_value == pytest.approx(expected, abs=0.04)  # 2 * 1.96 * sqrt(p q / 2000)


def test_the_environment_is_left_as_it_was(corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    better, worse, reference = corpus
    monkeypatch.setenv("SACREBLEU_SEED", "77")
    compare(better, worse, reference, trials=10, seed=5)
    assert os.environ["SACREBLEU_SEED"] == "77"
    monkeypatch.delenv("SACREBLEU_SEED")
    compare(better, worse, reference, trials=10, seed=5)
    assert "SACREBLEU_SEED" not in os.environ
