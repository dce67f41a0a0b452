"""Each sentence is in one bucket, by its length; a single bucket is the whole corpus."""

from __future__ import annotations

from nmtdeep.scoring import score_texts
from nmtdeep.scoring.report import score_by_length

from .conftest import damage


def test_every_sentence_is_in_one_bucket(german: list[str]) -> None:
    damaged = damage(german, every=2)
    buckets = score_by_length(damaged, [german], german, ["bleu"])
    assert sum(bucket.sentences for bucket in buckets) == len(german)
    for bucket in buckets:
        lengths = [n for n in map(len, map(str.split, german)) if bucket.first <= n <= bucket.last]
        assert len(lengths) == bucket.sentences > 0


def test_a_single_bucket_is_the_whole_corpus(german: list[str]) -> None:
    damaged = damage(german, every=2)
    metrics = ["bleu", "chrf", "ter", "bleu-compound"]
    (bucket,) = score_by_length(damaged, [german], ["one word"] * len(german), metrics)
    assert bucket.scores == score_texts(damaged, [german], metrics)


def test_boundaries_by_hand() -> None:
    lines = [" ".join(["w"] * n) for n in (0, 1, 10, 11, 20, 21, 95)]
    buckets = score_by_length(lines, [lines], lines, ["bleu-tok"])
    assert [(bucket.span, bucket.sentences) for bucket in buckets] == [
        ("0", 1),
        ("1-10", 2),
        ("11-20", 2),
        ("21-30", 1),
        ("91-100", 1),
    ]
