"""Scores as lines for a pipe, as tables for a terminal, as records for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from rich.table import Table

from nmtdeep.errors import printable
from nmtdeep.scoring.metrics import METRICS, Score
from nmtdeep.scoring.report import Report
from nmtdeep.tables import as_lines, table


class Scored(Protocol):
    """A number, its metric's name and its signature: a line of `scores.json`."""

    @property
    def metric(self) -> str:
        """The metric's name, a key of `METRICS`."""

    @property
    def value(self) -> float:
        """The score."""

    @property
    def signature(self) -> str:
        """Settings and versions behind the score."""


def score_table(scores: Mapping[str, Sequence[Scored]]) -> list[str]:
    """Final scores as lines of plain text: a row per set, a column per metric, then signatures.

    Each signature stands once. Where a metric has several, its sets are named: `BLEU (valid)`.

    Args:
        scores: of each set, at most one of a metric.
    """
    found = {(name, one.metric): one for name, listed in scores.items() for one in listed}
    if not found:
        return []
    metrics = list(dict.fromkeys(metric for _, metric in found))
    rows = []
    for name in scores:
        cells = (found.get((name, metric)) for metric in metrics)
        rows.append((name, *(cell and f"{cell.value:.2f}" for cell in cells)))
    columns = {"set": "left", **{heading_of(metric): "right" for metric in metrics}}
    signed = signed_by(found)
    width = max(len(name) for name, _ in signed)
    below = [printable(f"{name:<{width}}  {signature}") for name, signature in signed]
    return [*as_lines(table(columns, rows)), "", *below]


def signed_by(found: Mapping[tuple[str, str], Scored]) -> list[tuple[str, str]]:
    """The metric's name and each of its signatures once; with the sets if there are several.

    Args:
        found: scores by the name of the set and by metric.
    """
    sets: dict[str, dict[str, list[str]]] = {}
    for (name, metric), one in found.items():
        sets.setdefault(metric, {}).setdefault(one.signature, []).append(name)
    return [
        (label_of(metric) + (f" ({', '.join(names)})" if len(signed) > 1 else ""), signature)
        for metric, signed in sets.items()
        for signature, names in signed.items()
    ]


def label_of(metric: str) -> str:
    """The name that papers print; of an unknown metric its own."""
    return METRICS[metric].label if metric in METRICS else metric


def heading_of(metric: str) -> str:
    """The name that papers print, and where better scores are: `BLEU ↑`."""
    return f"{METRICS[metric].label} {_arrow(metric)}" if metric in METRICS else metric


def records(report: Report) -> list[dict[str, Any]]:
    """One flat record per number, told apart by `kind`: score, comparison or bucket."""
    scores = [_score_record(score, kind="score", system=report.system) for score in report.scores]
    comparisons = [{"kind": "comparison", **asdict(c)} for c in report.comparisons]
    buckets = [
        _score_record(
            score,
            kind="bucket",
            system=report.system,
            length_of=report.measured,
            first=bucket.first,
            last=bucket.last,
            sentences=bucket.sentences,
        )
        for bucket in report.buckets
        for score in bucket.scores
    ]
    return scores + comparisons + buckets


def plain_lines(report: Report) -> Iterator[str]:
    """`BLEU 41.02 SIGNATURE`, then `compare SYSTEM ...` and `bucket 1-10 ...` where asked for."""
    for score in report.scores:
        yield f"{score.label} {score.value:.2f} {score.signature}"
    for comparison in report.comparisons:
        if comparison.p_value is not None:
            yield (
                f"compare {comparison.system} {METRICS[comparison.metric].label} "
                f"{comparison.value:.2f} {comparison.difference:+.2f} "
                f"p={comparison.p_value:.4f} {comparison.signature}"
            )
    for bucket in report.buckets:
        values = " ".join(f"{score.label} {score.value:.2f}" for score in bucket.scores)
        yield f"bucket {bucket.span} sentences {bucket.sentences} {values}"


def tables(report: Report) -> Iterator[Table]:
    """The same for eyes: scores, then comparisons, then lengths."""
    yield _score_table(report)
    if report.comparisons:
        yield _comparison_table(report)
    if report.buckets:
        yield _bucket_table(report)


def signatures(report: Report) -> list[str]:
    """What stands below the tables, each once: `BLEU: nrefs:1|case:mixed|...`."""
    named = [(score.label, score.signature) for score in report.scores]
    named += [(METRICS[c.metric].label, c.signature) for c in report.comparisons]
    return list(dict.fromkeys(f"{label}: {signature}" for label, signature in named))


def _score_record(score: Score, **where: Any) -> dict[str, Any]:
    return {
        **where,
        "metric": score.name,
        "label": score.label,
        "value": score.value,
        "signature": score.signature,
        "details": dict(score.details),
    }


def _details(score: Score) -> str:
    parts = []
    for key, value in score.details.items():
        if isinstance(value, tuple):
            parts.append("/".join(f"{one:.1f}" for one in value))
        else:
            digits = 3 if isinstance(value, float) and value < 10 else 0
            parts.append(f"{key.replace('_', ' ')} {value:.{digits}f}")
    return ", ".join(parts)


def _arrow(metric: str) -> str:
    return "↑" if METRICS[metric].higher_is_better else "↓"


def _score_table(report: Report) -> Table:
    rows = [(heading_of(one.name), f"{one.value:.2f}", _details(one)) for one in report.scores]
    columns = {"metric": "left", "score": "right", "details": "left"}
    return table(columns, rows, title=report.system)


def _comparison_table(report: Report) -> Table:
    columns = {"metric": "left", "system": "left"} | dict.fromkeys(
        ("score", "mean ± 95 %", "difference", "p"), "right"
    )
    rows = []
    for row in report.comparisons:
        baseline = row.p_value is None
        rows.append(
            (
                heading_of(row.metric),
                row.system,
                f"{row.value:.2f}",
                "" if row.mean is None else f"{row.mean:.2f} ± {row.interval:.2f}",
                "baseline" if baseline else f"{row.difference:+.2f}",
                "" if baseline else f"{row.p_value:.4f}",
            )
        )
    return table(columns, rows, title=f"compared with {report.system}")


def _bucket_table(report: Report) -> Table:
    columns = dict.fromkeys(("words", "sentences", *(one.label for one in report.scores)), "right")
    rows = [
        (bucket.span, bucket.sentences, *(f"{score.value:.2f}" for score in bucket.scores))
        for bucket in report.buckets
    ]
    return table(columns, rows, title=f"by length of {report.measured}")
