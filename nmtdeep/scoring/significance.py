"""Significance tests of differences between systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from nmtdeep.scoring.texts import check_counts

# No p below 0.05 with fewer lines that differ.
FEWEST = 6
Resampling = Literal["bootstrap", "randomization"]
_SACREBLEU_TEST = {"bootstrap": "bs", "randomization": "ar"}


@dataclass(frozen=True)
class Comparison:
    """One system against the baseline by one metric; the baseline itself has no `p_value`.

    `mean` and `interval` are the mean of the bootstrap samples and half the width of their middle
    95 %; approximate randomization has neither. `differing` counts the lines that are not equal in
    both systems.
    """

    metric: str
    system: str
    value: float
    difference: float
    p_value: float | None
    mean: float | None
    interval: float | None
    signature: str
    differing: int = 0


def compare_systems(
    baseline: tuple[str, Sequence[str]],
    systems: Sequence[tuple[str, Sequence[str]]],
    references: Sequence[Sequence[str]],
    metrics: Mapping[str, Metric],
    *,
    test: Resampling = "bootstrap",
    trials: int = 1000,
) -> list[Comparison]:
    """Test each system against the baseline, with sacreBLEU's `PairedTest`.

    Paired bootstrap (Koehn 2004): draw the test set again T times, with replacement;
    p = (#{|d_i| - mean|d| > |d|} + 1) / (T + 1), d the observed difference of the scores, d_i
    that of sample i. Approximate randomization (Riezler and Maxwell 2005): swap the two systems'
    lines at random instead; p = (#{|d_i| > |d|} + 1) / (T + 1).

    Where the scores are equal, p is 1: no difference is not significant. (sacreBLEU's strict
    comparison finds no sample beyond 0 for two identical files, and would call them different.)

    p is at least 2^(1-n), n the lines that differ: so often a coin for each of them prefers the
    same system n times. sacreBLEU's comparison would call a difference in one line significant.

    As for sacreBLEU itself, the random seed is 12345 or that of the environment's SACREBLEU_SEED.

    Args:
        metrics: as `scorers` makes them.
    """
    named = [baseline, *systems]
    check_counts(baseline, *systems, *(("reference", lines) for lines in references))
    comparisons = []
    for metric, scorer in metrics.items():
        # One test per metric: PairedTest identifies metrics by sacreBLEU's names, and every kind of
        # BLEU is "BLEU" to it.
        paired = PairedTest(
            named, {metric: scorer}, references, test_type=_SACREBLEU_TEST[test], n_samples=trials
        )
        signatures, columns = paired()
        ((title, signature),) = signatures.items()
        results = [result for result in columns[title] if isinstance(result, Result)]
        for (system, lines), result in zip(named, results, strict=True):
            difference, p_value = float(result.score - results[0].score), result.p_value
            differing = sum(map(str.__ne__, baseline[1], lines))
            if p_value is not None:
                p_value = min(1.0, max(p_value, 2.0 ** (1 - differing))) if difference else 1.0
            comparisons.append(
                Comparison(
                    metric,
                    system,
                    value=float(result.score),
                    difference=difference,
                    p_value=p_value,
                    mean=None if result.mean is None else float(result.mean),
                    interval=None if result.ci is None else float(result.ci),
                    signature=str(signature),
                    differing=differing,
                )
            )
    return comparisons
