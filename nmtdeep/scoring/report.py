"""All that one call of `nmtdeep score` measures, as lines and JSON; scores of held-out sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sacrebleu.metrics.base import Metric

from nmtdeep.errors import printable
from nmtdeep.scoring.metrics import Score, heading_of, label_of, score_texts
from nmtdeep.scoring.significance import FEWEST, Comparison, Resampling, compare_systems
from nmtdeep.scoring.texts import Texts
from nmtdeep.tables import as_lines, table
from nmtdeep.units import counted


def measure(
    texts: Texts, metrics: Mapping[str, Metric], *, test: Resampling, trials: int
) -> list[Score | Comparison]:
    """The scores of the hypotheses, then the comparisons with other systems, if there are any."""
    references = [text.lines for text in texts.references]
    rows: list[Score | Comparison] = [*score_texts(texts.hypotheses.lines, references, metrics)]
    if texts.systems:
        rows += compare_systems(
            texts.hypotheses, texts.systems, references, metrics, test=test, trials=trials
        )
    return rows


def records(system: str, rows: Sequence[Score | Comparison]) -> list[dict[str, Any]]:
    """One flat record for each row, for `json.dumps`; `kind` is score or comparison."""
    return [{"kind": type(row).__name__.lower(), "system": system, **asdict(row)} for row in rows]


def plain_lines(rows: Sequence[Score | Comparison]) -> Iterator[str]:
    """`BLEU 41.02 SIGNATURE DETAILS`, then `compare SYSTEM BLEU 40.62 -0.40 p=0.0120 ...`."""
    for row in rows:
        parts = [label_of(row.metric), f"{row.value:.2f}"]
        if isinstance(row, Score):
            parts += [row.signature, _details(row)]
        else:
            is_baseline = row.p_value is None
            test = "baseline" if is_baseline else f"{row.difference:+.2f} p={row.p_value:.4f}"
            parts = ["compare", printable(row.system), *parts, test, row.signature]
            parts += [] if row.mean is None else [f"mean {row.mean:.2f} ± {row.interval:.2f}"]
            few = f"({counted(row.differing, 'differing line')}: too few to tell)"
            parts += [few] if not is_baseline and row.differing < FEWEST else []
        yield " ".join(filter(None, parts))


def _details(score: Score) -> str:
    parts = []
    for key, value in score.details.items():
        if isinstance(value, tuple):
            parts.append("/".join(f"{number:.1f}" for number in value))
        else:
            digits = 3 if isinstance(value, float) and value < 10 else 0
            parts.append(f"{key.replace('_', ' ')} {value:.{digits}f}")
    return ", ".join(parts)


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
    headings = ("set", *map(heading_of, metrics))
    signed = signed_by(cells)
    width = max(len(name) for name, _ in signed)
    below = [printable(f"{name:<{width}}  {signature}") for name, signature in signed]
    return [*as_lines(table(headings, rows)), "", *below]


def signed_by(scores: Mapping[tuple[str, str], Score]) -> list[tuple[str, str]]:
    """The metric's name and each of its signatures once.

    If a metric has several signatures, their sets are named: `BLEU (valid)`.
    """
    sets: dict[str, dict[str, list[str]]] = {}
    for (name, metric), score in scores.items():
        sets.setdefault(metric, {}).setdefault(score.signature, []).append(name)
    return [
        (label_of(metric) + (f" ({', '.join(names)})" if len(signed) > 1 else ""), signature)
        for metric, signed in sets.items()
        for signature, names in signed.items()
    ]
