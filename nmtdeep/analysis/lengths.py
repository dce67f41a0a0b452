"""Scores by the length of the source: where a deeper model gains, and where it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nmtdeep.analysis.findings import Findings, signed
from nmtdeep.analysis.panels import Bars, Curve, Curves, Picture
from nmtdeep.scoring.buckets import Bucket, score_by_length
from nmtdeep.scoring.texts import Text, check_counts
from nmtdeep.tables import table


@dataclass(frozen=True)
class LengthScore:
    """The score of one system's sentences whose sources have `first` to `last` words."""

    system: str
    first: int
    last: int
    sentences: int
    metric: str
    score: float


def find(
    source: Text, reference: Text, systems: Mapping[str, Sequence[str]], metric: str
) -> Findings:
    """The scores of some systems, each bucket as a corpus of its own; see `score_by_length`.

    Args:
        systems: translations by name.

    Raises:
        UserError: if the texts have different numbers of lines.
    """
    check_counts(source, [reference, *(Text(name, list(lines)) for name, lines in systems.items())])
    buckets = {
        name: score_by_length(lines, [reference.lines], source.lines, [metric])
        for name, lines in systems.items()
    }
    rows = [
        LengthScore(
            name, one.first, one.last, one.sentences, one.scores[0].name, one.scores[0].value
        )
        for name, some in buckets.items()
        for one in some
    ]
    some = next(iter(buckets.values()))
    columns = {"words": "right", "sentences": "right"} | dict.fromkeys(systems, "right")
    shown = (
        (one.span, one.sentences, *(f"{of[place].scores[0].value:.2f}" for of in buckets.values()))
        for place, one in enumerate(some)
    )
    made = {"lengths": f"words of {source.name}", metric: some[0].scores[0].signature}
    tables = [table(columns, shown)]
    return Findings(rows, tables, lambda: _picture(buckets), made, signed(made))


def _picture(buckets: Mapping[str, Sequence[Bucket]]) -> Picture:
    """Scores above, sentences below, so that nobody trusts a bucket of three."""
    some = next(iter(buckets.values()))
    spans = [one.span for one in some]
    curves = [
        Curve(range(len(spans)), [one.scores[0].value for one in found], name)
        for name, found in buckets.items()
    ]
    label = some[0].scores[0].label
    return Picture(
        [
            Curves(curves, "words of the source", label, names=spans),
            Bars(
                spans,
                {"": [one.sentences for one in some]},
                "words of the source",
                "sentences",
            ),
        ]
    )
