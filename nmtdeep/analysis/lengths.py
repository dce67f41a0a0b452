"""Scores by the length of the source: where a deeper model gains, and where it fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from nmtdeep.analysis.measurement import Column, Measurement
from nmtdeep.scoring.metrics import label_of, score_texts
from nmtdeep.scoring.texts import NamedText, check_counts

WIDTH = 10  # words


class LengthScore(NamedTuple):
    """The score of one system's sentences whose sources have so many words, such as `1-10`."""

    system: Annotated[str, Column("system", role="curve")]
    words: Annotated[str, Column("source words", role="x")]
    sentences: Annotated[int, Column("sentences", role="y")]
    metric: str
    score: Annotated[float, Column("score", role="y")]


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
    conditions = {"lengths": f"words of {source.name}", metric: signature}
    title = f"{label_of(metric)} by length of the source"
    return Measurement(title, rows, conditions, form=".2f")
