"""All that one call of `nmtdeep score` measures, as lines, tables and JSON records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from nmtdeep.errors import printable
from nmtdeep.scoring.metrics import DEFAULT_METRICS, Score, heading_of, label_of, score_texts
from nmtdeep.scoring.significance import Comparison, compare_systems
from nmtdeep.scoring.texts import Texts
from nmtdeep.scoring.tokenized import MosesPreparation
from nmtdeep.tables import as_lines, table

BUCKET_WIDTH = 10


@dataclass(frozen=True)
class Bucket:
    """The sentences of `first` to `last` words, and their scores as a corpus of their own."""

    first: int
    last: int
    sentences: int
    scores: list[Score]

    @property
    def span(self) -> str:
        """The lengths as they are printed: `11-20`; `0` for empty lines."""
        return f"{self.first}-{self.last}" if self.last else "0"


@dataclass(frozen=True)
class Report:
    """The scores of one system.

    Attributes:
        comparisons: with other systems; often empty.
        buckets: scores by length; often empty.
        measured: name of the text whose line lengths define the buckets.
    """

    system: str
    scores: list[Score]
    comparisons: list[Comparison]
    buckets: list[Bucket]
    measured: str


def measure(
    texts: Texts,
    metrics: Sequence[str],
    *,
    buckets: bool,
    preparation: MosesPreparation | None = None,
    **paired: Any,
) -> Report:
    """Score, compare with the other systems if there are any, and score by length if `buckets`.

    Lengths are those of the source if it is known, otherwise those of the first reference.

    Args:
        paired: options of `compare_systems`.
    """
    lines, references = texts.hypotheses.lines, [text.lines for text in texts.references]
    measured = texts.source or texts.references[0]
    comparisons, by_length = [], []
    if texts.systems:
        comparisons = compare_systems(
            texts.hypotheses, texts.systems, references, metrics, preparation=preparation, **paired
        )
    if buckets:
        by_length = score_by_length(
            lines, references, measured.lines, metrics, preparation=preparation
        )
    scores = score_texts(lines, references, metrics, preparation=preparation)
    return Report(texts.hypotheses.name, scores, comparisons, by_length, measured.name)


def score_by_length(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    measured: Sequence[str],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    preparation: MosesPreparation | None = None,
) -> list[Bucket]:
    """Score the sentences of each length apart: 0, 1-10, 11-20, ... words of `measured`.

    Args:
        measured: the text whose length decides, one line per sentence (a reference or the source);
            words are separated by white space.

    Returns:
        Buckets that have a sentence.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for index, line in enumerate(measured):
        members[-(-len(line.split()) // BUCKET_WIDTH)].append(index)
    buckets = []
    for rank, indices in sorted(members.items()):
        lines, *others = ([text[index] for index in indices] for text in (hypotheses, *references))
        scores = score_texts(lines, others, metrics, preparation=preparation)
        first = (rank - 1) * BUCKET_WIDTH + 1 if rank else 0
        buckets.append(Bucket(first, rank * BUCKET_WIDTH, len(indices), scores))
    return buckets


def records(report: Report) -> list[dict[str, Any]]:
    """One flat record per number; `kind` is score, comparison or bucket."""

    def record(kind: str, score: Score, **place: Any) -> dict[str, Any]:
        place = {"kind": kind, "system": report.system, **place}
        return {**place, **asdict(score), "label": label_of(score.metric)}

    scores = [record("score", score) for score in report.scores]
    comparisons = [{"kind": "comparison", **asdict(row)} for row in report.comparisons]
    buckets = [
        record(
            "bucket",
            score,
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
    """`BLEU 41.02 SIGNATURE`, then lines `compare SYSTEM ...` and `bucket 1-10 ...`."""
    for score in report.scores:
        yield f"{label_of(score.metric)} {score.value:.2f} {score.signature}"
    for row in report.comparisons:
        if row.p_value is not None:
            yield (
                f"compare {row.system} {label_of(row.metric)} {row.value:.2f} "
                f"{row.difference:+.2f} p={row.p_value:.4f} {row.signature}"
            )
    for bucket in report.buckets:
        values = (f"{label_of(score.metric)} {score.value:.2f}" for score in bucket.scores)
        yield f"bucket {bucket.span} sentences {bucket.sentences} {' '.join(values)}"


def tables(report: Report) -> Iterator[Table]:
    """Scores, then comparisons, then scores by length."""
    columns = {"metric": "left", "score": "right", "details": "left"}
    scores = [
        (heading_of(score.metric), f"{score.value:.2f}", _details(score)) for score in report.scores
    ]
    yield table(columns, scores, title=report.system)
    if report.comparisons:
        columns = {"metric": "left", "system": "left"}
        columns |= dict.fromkeys(("score", "mean ± 95 %", "difference", "p"), "right")
        title = f"compared with {report.system}"
        yield table(columns, map(_comparison_cells, report.comparisons), title=title)
    if report.buckets:
        headings = ("words", "sentences", *(label_of(score.metric) for score in report.scores))
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


def _details(score: Score) -> str:
    parts = []
    for key, value in score.details.items():
        if isinstance(value, tuple):
            parts.append("/".join(f"{number:.1f}" for number in value))
        else:
            digits = 3 if isinstance(value, float) and value < 10 else 0
            parts.append(f"{key.replace('_', ' ')} {value:.{digits}f}")
    return ", ".join(parts)


def _comparison_cells(row: Comparison) -> tuple[str, ...]:
    cells = (heading_of(row.metric), row.system, f"{row.value:.2f}")
    mean = "" if row.mean is None else f"{row.mean:.2f} ± {row.interval:.2f}"
    if row.p_value is None:
        return *cells, mean, "baseline", ""
    return *cells, mean, f"{row.difference:+.2f}", f"{row.p_value:.4f}"
