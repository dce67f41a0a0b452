"""Everything one call of `nmtdeep score` measures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmtdeep.scoring.buckets import Bucket, score_by_length
from nmtdeep.scoring.metrics import Score, score_texts
from nmtdeep.scoring.significance import Comparison, PairedOptions, compare_systems
from nmtdeep.scoring.texts import Texts
from nmtdeep.scoring.tokenized import MosesPreparation


@dataclass(frozen=True)
class Report:
    """The scores of `system` and what was asked for beside them.

    `measured` names the text whose length the buckets go by.
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
    """Score, compare with the other systems if there are any, and part by length if asked to.

    Lengths are the source's where it is known, else the first reference's.
    """
    hypotheses = texts.hypotheses.lines
    references = [text.lines for text in texts.references]
    measured = texts.source or texts.references[0]
    comparisons = []
    if texts.systems:
        comparisons = compare_systems(
            (texts.hypotheses.name, hypotheses),
            [(text.name, text.lines) for text in texts.systems],
            references,
            metrics,
            options=paired,
            preparation=preparation,
        )
    by_length = []
    if buckets:
        by_length = score_by_length(
            hypotheses, references, measured.lines, metrics, preparation=preparation
        )
    return Report(
        system=texts.hypotheses.name,
        scores=score_texts(hypotheses, references, metrics, preparation=preparation),
        comparisons=comparisons,
        buckets=by_length,
        measured=measured.name,
    )
