"""Scores by the length of the source: where a deeper model gains, and where it fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, grouped
from nmtdeep.scoring.metrics import label_of, score_texts
from nmtdeep.scoring.texts import NamedText, check_counts
from nmtdeep.tables import table

WIDTH = 10  # words


class LengthScore(NamedTuple):
    """The score of one system's sentences whose sources have so many words, such as `1-10`."""

    system: str
    words: str
    sentences: int
    metric: str
    score: float


def measure(
    source: NamedText, reference: NamedText, systems: Mapping[str, Sequence[str]], metric: str
) -> Measurement:
    """The scores of some systems, sentences of 0, 1-10, 11-20, ... words each as a corpus.

    Words are separated by white space. Lengths that no sentence has are omitted.
    """
    check_counts(source, reference, *systems.items())
    buckets: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(source.lines):
        buckets[-(-len(line.split()) // WIDTH) * WIDTH].append(number)
    rows, signature = [], ""
    for system, lines in systems.items():
        for last, numbers in sorted(buckets.items()):
            hypotheses = [lines[number] for number in numbers]
            references = [[reference.lines[number] for number in numbers]]
            (score,) = score_texts(hypotheses, references, [metric])
            words = f"{last - WIDTH + 1}-{last}" if last else "0"
            rows.append(LengthScore(system, words, len(numbers), metric, score.value))
            signature = score.signature
    spans = grouped(rows, "words", "sentences").items()
    cells = ((*span, *(f"{row.score:.2f}" for row in scores)) for span, scores in spans)
    listed = table(("words", "sentences", *systems), cells, text=0)
    conditions = {"lengths": f"words of {source.name}", metric: signature}
    return Measurement(rows, conditions, [listed], partial(_draw, rows))


def _draw(rows: Sequence[LengthScore], figure: pictures.Figure) -> None:
    """Scores above, number of sentences below, which shows how far a score can be trusted."""
    sentences = {row.words: row.sentences for row in rows}
    scores, counts = pictures.panels(figure, 2)
    pictures.curves(scores, grouped(rows, "system"), "words", "score")
    scores.set(xlabel="words of the source", ylabel=label_of(rows[0].metric))
    counts.bar(list(sentences), list(sentences.values()), **pictures.BARS)
    counts.set(xlabel="words of the source", ylabel="sentences")
