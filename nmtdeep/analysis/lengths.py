"""Scores by the length of the source: where a deeper model gains, and where it fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from nmtdeep.analysis.measurement import Measurement, grouped
from nmtdeep.analysis.pictures import Panel, plot
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
    # The number of sentences shows how far a score can be trusted.
    over = [Panel(label_of(metric), "score"), Panel("sentences", "sentences", kind="bars")]
    groups, label = grouped(rows, "system"), "words of the source"
    draw = partial(plot, groups=groups, over=over, x="words", label=label)
    return Measurement(rows, conditions, [listed], draw)
