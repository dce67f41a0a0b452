"""Scores by the length of the source: where a deeper model gains, and where it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from nmtdeep.analysis.measurement import Measurement
from nmtdeep.analysis.pictures import BARS, name_ticks, panels, styles
from nmtdeep.scoring.metrics import METRICS
from nmtdeep.scoring.report import score_by_length
from nmtdeep.scoring.texts import Text, check_counts
from nmtdeep.tables import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class LengthScore:
    """The score of one system's sentences whose sources have `first` to `last` words.

    Attributes:
        span: these words as they are printed: `11-20`.
    """

    system: str
    span: str
    first: int
    last: int
    sentences: int
    metric: str
    score: float


def measure(
    source: Text, reference: Text, systems: Mapping[str, Sequence[str]], metric: str
) -> Measurement:
    """The scores of some systems, each bucket as a corpus of its own; see `score_by_length`.

    Args:
        systems: translations by name.

    Raises:
        UserError: if the texts have different numbers of lines.
    """
    check_counts(source, [reference, *(Text(name, list(lines)) for name, lines in systems.items())])
    rows, signature = [], ""
    for name, lines in systems.items():
        for bucket in score_by_length(lines, [reference.lines], source.lines, [metric]):
            (score,) = bucket.scores
            place = (bucket.span, bucket.first, bucket.last, bucket.sentences)
            rows.append(LengthScore(name, *place, metric, score.value))
            signature = score.signature
    return Measurement(rows, {"lengths": f"words of {source.name}", metric: signature})


def tables(rows: Sequence[LengthScore]) -> list[Table]:
    """A row for each span of lengths, a column for each system."""
    systems = dict.fromkeys(row.system for row in rows)
    columns = dict.fromkeys(("words", "sentences", *systems), "right")
    scores: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        scores.setdefault((row.span, row.sentences), []).append(f"{row.score:.2f}")
    return [table(columns, ((*bucket, *cells) for bucket, cells in scores.items()))]


def draw(rows: Sequence[LengthScore], figure: Figure) -> None:
    """Scores above, number of sentences below, which shows how far a score can be trusted."""
    sentences = {row.span: row.sentences for row in rows}
    style = styles(row.system for row in rows)
    scores, counts = panels(figure, 2)
    for name in style:
        scores.plot([row.score for row in rows if row.system == name], **style[name])
    scores.set(xlabel="words of the source", ylabel=METRICS[rows[0].metric].label)
    counts.bar(range(len(sentences)), list(sentences.values()), **BARS)
    counts.set(xlabel="words of the source", ylabel="sentences")
    for axes in (scores, counts):
        name_ticks(axes.xaxis, list(sentences))
