"""Scores by sentence length: where a deeper model gains, and where it fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from nmtdeep.errors import DataError
from nmtdeep.scoring.metrics import DEFAULT_METRICS, Score, check_lengths, score_texts
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
        """The lengths as they are printed."""
        return span(self.first, self.last)


def span(first: int, last: int) -> str:
    """A range of lengths as it is printed: `11-20`; `0` for empty lines."""
    return f"{first}-{last}" if last else "0"


def score_by_length(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    measured: Sequence[str],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    preparation: MosesPreparation | None = None,
) -> list[Bucket]:
    """Score the sentences of each length apart: 0, 1-10, 11-20, ... words of `measured`.

    `measured` is the text whose length decides, one line per sentence (a reference or the source);
    words are what white space parts. Buckets without a sentence are left out.
    """
    check_lengths(hypotheses, references)
    if len(measured) != len(hypotheses):
        raise DataError(
            f"{len(measured)} lines to measure, but {len(hypotheses)} hypotheses; "
            "give one line per hypothesis"
        )
    members: dict[int, list[int]] = defaultdict(list)
    for index, line in enumerate(measured):
        members[-(-len(line.split()) // BUCKET_WIDTH)].append(index)
    return [
        Bucket(
            first=(rank - 1) * BUCKET_WIDTH + 1 if rank else 0,
            last=rank * BUCKET_WIDTH,
            sentences=len(indices),
            scores=tuple(
                score_texts(
                    [hypotheses[i] for i in indices],
                    [[lines[i] for i in indices] for lines in references],
                    metrics,
                    preparation=preparation,
                )
            ),
        )
        for rank, indices in sorted(members.items())
    ]
