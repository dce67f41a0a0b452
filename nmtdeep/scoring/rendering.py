"""Scores as lines for a pipe, as tables for a terminal, as records for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from nmtdeep.errors import printable
from nmtdeep.scoring.metrics import Score, heading_of, label_of
from nmtdeep.scoring.report import Report
from nmtdeep.scoring.significance import Comparison
from nmtdeep.tables import as_lines, table


def score_table(scores: Mapping[str, Sequence[Score]]) -> list[str]:
    """Final scores as lines of plain text: a row per set, a column per metric, then signatures.

    Args:
        scores: of each set, at most one of a metric.
    """
    cells = {(name, score.metric): score for name, listed in scores.items() for score in listed}
    if not cells:
        return []
    metrics = list(dict.fromkeys(metric for _, metric in cells))
    rows = []
    for name in scores:
        row = (cells.get((name, metric)) for metric in metrics)
        rows.append((name, *(score and f"{score.value:.2f}" for score in row)))
    columns = {"set": "left", **{heading_of(metric): "right" for metric in metrics}}
    signed = signed_by(cells)
    width = max(len(name) for name, _ in signed)
    below = [printable(f"{name:<{width}}  {signature}") for name, signature in signed]
    return [*as_lines(table(columns, rows)), "", *below]


def signed_by(scores: Mapping[tuple[str, str], Score]) -> list[tuple[str, str]]:
    """The metric's name and each of its signatures once.

    If a metric has several signatures, their sets are named: `BLEU (valid)`.

    Args:
        scores: by the name of the set and by metric.
    """
    sets: dict[str, dict[str, list[str]]] = {}
    for (name, metric), score in scores.items():
        sets.setdefault(metric, {}).setdefault(score.signature, []).append(name)
    return [
        (label_of(metric) + (f" ({', '.join(names)})" if len(signed) > 1 else ""), signature)
        for metric, signed in sets.items()
        for signature, names in signed.items()
    ]


def records(report: Report) -> list[dict[str, Any]]:
    """One flat record per number; `kind` is score, comparison or bucket."""
    system = {"system": report.system}
    scores = [{"kind": "score", **system, **_record(score)} for score in report.scores]
    comparisons = [{"kind": "comparison", **asdict(row)} for row in report.comparisons]
    buckets = []
    for bucket in report.buckets:
        place: dict[str, Any] = {"kind": "bucket", **system, "length_of": report.measured}
        place |= {"first": bucket.first, "last": bucket.last, "sentences": bucket.sentences}
        buckets += [place | _record(score) for score in bucket.scores]
    return scores + comparisons + buckets


def plain_lines(report: Report) -> Iterator[str]:
    """`BLEU 41.02 SIGNATURE`, then lines `compare SYSTEM ...` and `bucket 1-10 ...`."""
    for score in report.scores:
        yield f"{score.label} {score.value:.2f} {score.signature}"
    for row in report.comparisons:
        if row.p_value is not None:
            yield (
                f"compare {row.system} {label_of(row.metric)} {row.value:.2f} "
                f"{row.difference:+.2f} p={row.p_value:.4f} {row.signature}"
            )
    for bucket in report.buckets:
        values = " ".join(f"{score.label} {score.value:.2f}" for score in bucket.scores)
        yield f"bucket {bucket.span} sentences {bucket.sentences} {values}"


def tables(report: Report) -> Iterator[Table]:
    """Scores, then comparisons, then scores by length."""
    columns = {"metric": "left", "score": "right", "details": "left"}
    scores = [
        (heading_of(score.metric), f"{score.value:.2f}", _details(score)) for score in report.scores
    ]
    yield table(columns, scores, title=report.system)
    if report.comparisons:
        yield _comparison_table(report)
    if report.buckets:
        headings = ("words", "sentences", *(score.label for score in report.scores))
        rows = [
            (bucket.span, bucket.sentences, *(f"{score.value:.2f}" for score in bucket.scores))
            for bucket in report.buckets
        ]
        title = f"by length of {report.measured}"
        yield table(dict.fromkeys(headings, "right"), rows, title=title)


def signatures(report: Report) -> list[str]:
    """Each signature once: `BLEU: nrefs:1|case:mixed|...`."""
    signed: list[Score | Comparison] = [*report.scores, *report.comparisons]
    return list(dict.fromkeys(f"{label_of(row.metric)}: {row.signature}" for row in signed))


def _record(score: Score) -> dict[str, Any]:
    return {**asdict(score), "label": score.label}


def _details(score: Score) -> str:
    parts = []
    for key, value in score.details.items():
        if isinstance(value, tuple):
            parts.append("/".join(f"{number:.1f}" for number in value))
        else:
            digits = 3 if isinstance(value, float) and value < 10 else 0
            parts.append(f"{key.replace('_', ' ')} {value:.{digits}f}")
    return ", ".join(parts)


def _comparison_table(report: Report) -> Table:
    columns = {"metric": "left", "system": "left"}
    columns |= dict.fromkeys(("score", "mean ± 95 %", "difference", "p"), "right")
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
