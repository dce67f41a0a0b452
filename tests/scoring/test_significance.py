"""p is 1 for no difference and small for a large one; the same seed leads to the same numbers."""

import pytest

from nmtdeep.scoring import score_texts, scorers
from nmtdeep.scoring.significance import Comparison, compare_systems

from .conftest import damage

TESTS = ("bootstrap", "randomization")


def compare(
    baseline: list[str], other: list[str], reference: list[str], metric: str = "bleu", **options
) -> list[Comparison]:
    return compare_systems(
        ("first", baseline), [("second", other)], [reference], scorers([metric]), **options
    )


@pytest.fixture(scope="module")
def corpus(german):
    reference = german[:300]
    return damage(reference, every=6), damage(reference, every=2), reference


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("metric", ["bleu-tok", "ter"])
def test_identical_and_much_worse(corpus, test, metric):
    better, worse, reference = corpus
    _, same = compare(better, better, reference, metric, test=test, trials=200)
    assert (same.p_value, same.difference) == (1.0, 0.0)
    first, second = compare(better, worse, reference, metric, test=test, trials=200)
    assert first.p_value is None
    assert second.p_value == pytest.approx(1 / 201)  # not one sample of 200 is as extreme
    assert (second.difference < 0) == (metric != "ter")


def test_values_equal_those_of_the_metric(corpus):
    better, worse, reference = corpus
    metrics = scorers(["bleu", "bleu-intl", "ter"])
    systems = [("b", worse), ("c", better)]
    comparisons = compare_systems(("a", better), systems, [reference], metrics, trials=9)
    scores = [
        score.value
        for metric in metrics
        for lines in (better, worse, better)
        for score in score_texts(lines, [reference], [metric])
    ]
    assert [comparison.value for comparison in comparisons] == scores
    assert [c.system for c in comparisons] == ["a", "b", "c"] * 3
    assert [c.metric for c in comparisons[::3]] == ["bleu", "bleu-intl", "ter"]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("differing", [1, 5, 7])
def test_p_is_no_smaller_than_a_coin_for_each_differing_line(corpus, test, differing):
    """n fair coins fall on the same side, whichever, with probability 2 * 0.5^n (sign test)."""
    reference = corpus[2]
    worse = ["" if line < differing else text for line, text in enumerate(reference)]
    _, second = compare(reference, worse, reference, test=test, trials=1000)
    assert second.differing == differing
    assert 1 >= second.p_value >= 2 * 0.5**differing
    if differing < 6:  # one sentence alone, too
        assert second.p_value > 0.05
        _, alone = compare(reference[:differing], worse[:differing], reference[:differing])
        assert alone.p_value > 0.05


@pytest.mark.parametrize("test", TESTS)
def test_the_seed_is_sacrebleus(corpus, test, monkeypatch):
    better, _, reference = corpus
    system = damage(reference, every=7)  # as good: p is neither end of the scale
    runs = []
    for seed in ("1", "1", "2"):
        monkeypatch.setenv("SACREBLEU_SEED", seed)
        runs.append(compare(better, system, reference, test=test, trials=300))
    assert runs[0] == runs[1]
    assert runs[0][1].p_value != runs[2][1].p_value
    assert "seed:1|" in runs[0][1].signature
    key = "bs" if test == "bootstrap" else "ar"
    assert f"{key}:300|" in runs[0][1].signature
