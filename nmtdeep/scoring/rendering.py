"""Scores as lines for a pipe, as tables for a terminal, as records for JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.markup import escape
from rich.table import Table

from nmtdeep.scoring.metrics import METRICS, Score
from nmtdeep.scoring.report import Report


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
    table = Table(title=escape(report.system), title_justify="left")
    table.add_column("metric")
    table.add_column("score", justify="right")
    table.add_column("details", style="dim")
    for score in report.scores:
        table.add_row(f"{score.label} {_arrow(score.name)}", f"{score.value:.2f}", _details(score))
    return table


def _comparison_table(report: Report) -> Table:
    table = Table(title=f"compared with {escape(report.system)}", title_justify="left")
    table.add_column("metric")
    table.add_column("system")
    for heading in ("score", "mean ± 95 %", "difference", "p"):
        table.add_column(heading, justify="right")
    for row in report.comparisons:
        baseline = row.p_value is None
        table.add_row(
            f"{METRICS[row.metric].label} {_arrow(row.metric)}",
            escape(row.system),
            f"{row.value:.2f}",
            "" if row.mean is None else f"{row.mean:.2f} ± {row.interval:.2f}",
            "baseline" if baseline else f"{row.difference:+.2f}",
            "" if baseline else f"{row.p_value:.4f}",
        )
    return table


def _bucket_table(report: Report) -> Table:
    table = Table(title=f"by length of {escape(report.measured)}", title_justify="left")
    table.add_column("words", justify="right")
    table.add_column("sentences", justify="right")
    for score in report.scores:
        table.add_column(score.label, justify="right")
    for bucket in report.buckets:
        values = (f"{score.value:.2f}" for score in bucket.scores)
        table.add_row(bucket.span, str(bucket.sentences), *values)
    return table
