"""Buckets of sentences by length; scores on a screen, each signature once, within 80 columns."""

from __future__ import annotations

from nmtdeep.scoring import Score, score_texts
from nmtdeep.scoring.report import score_by_length, score_table

from .conftest import damage

BLEU = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
TER = "nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:2.5.1"


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


def test_final_scores_are_a_table_of_sets_by_metrics_and_each_signature_once() -> None:
    numbers = {"valid": (30.194, 55.5), "test_2016_flickr": (32.566, 100.0)}
    lines = score_table(
        {
            name: [Score("bleu", bleu, BLEU), Score("ter", ter, TER)]
            for name, (bleu, ter) in numbers.items()
        }
    )
    assert [line.split() for line in lines if "─" not in line] == [
        ["set", "BLEU", "↑", "TER", "↓"],
        ["valid", "30.19", "55.50"],
        ["test_2016_flickr", "32.57", "100.00"],
        [],
        ["BLEU", BLEU],
        ["TER", TER],
    ]
    assert max(map(len, lines)) <= 80


def test_signatures_that_differ_name_their_sets() -> None:
    other = BLEU.replace("nrefs:1", "nrefs:2")
    lines = score_table(
        {
            "valid": [Score("bleu", 1, BLEU)],
            "one": [Score("bleu", 2, BLEU)],
            "two": [Score("bleu", 3, other), Score("ter", 4, TER)],
        }
    )
    assert [line.split("  ")[0] for line in lines[-3:]] == [
        "BLEU (valid, one)",
        "BLEU (two)",
        "TER",
    ]
    assert lines[-2].endswith(other)
    assert next(line for line in lines if line.startswith("one")).split() == ["one", "2.00", "-"]


def test_strange_metrics_sets_and_no_scores_at_all() -> None:
    assert score_table({}) == []
    assert score_table({"valid": []}) == []
    lines = score_table({"[bold]\x1b": [Score("comet", 0.5, "a\nb")]})
    assert lines[0].split() == ["set", "comet"]
    assert lines[2].split() == ["[bold]\\x1b", "0.50"]
    assert lines[-1] == "comet  a\\nb"
