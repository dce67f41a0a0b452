"""Everything that one call of `nmtdeep score` measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nmtdeep.scoring.metrics import DEFAULT_METRICS, Score, score_texts
from nmtdeep.scoring.significance import Comparison, PairedOptions, compare_systems
from nmtdeep.scoring.texts import Texts
from nmtdeep.scoring.tokenized import MosesPreparation

BUCKET_WIDTH = 10


@dataclass(frozen=True)
class Bucket:
    """The sentences of `first` to `last` words, and their scores as a corpus of their own."""

    first: int
    last: int
    sentences: int
    scores: tuple[Score, ...]

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
    preparation: MosesPreparation | None,
    paired: PairedOptions,
    buckets: bool,
) -> Report:
    """Score, compare with the other systems if there are any, and score by length if `buckets`.

    Lengths are those of the source if it is known, otherwise those of the first reference.
    """
    hypotheses = texts.hypotheses.lines
    references = [text.lines for text in texts.references]
    measured = texts.source or texts.references[0]
    comparisons, by_length = [], []
    if texts.systems:
        comparisons = compare_systems(
            (texts.hypotheses.name, hypotheses),
            [(text.name, text.lines) for text in texts.systems],
            references,
            metrics,
            options=paired,
            preparation=preparation,
        )
    if buckets:
        by_length = score_by_length(
            hypotheses, references, measured.lines, metrics, preparation=preparation
        )
    scores = score_texts(hypotheses, references, metrics, preparation=preparation)
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
        lines = [hypotheses[index] for index in indices]
        others = [[reference[index] for index in indices] for reference in references]
        scores = score_texts(lines, others, metrics, preparation=preparation)
        first = (rank - 1) * BUCKET_WIDTH + 1 if rank else 0
        buckets.append(Bucket(first, rank * BUCKET_WIDTH, len(indices), tuple(scores)))
    return buckets
