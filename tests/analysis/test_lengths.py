"""Scores by the length of the source: those of sacreBLEU on the same sentences."""

import pytest
from sacrebleu import corpus_bleu

from nmtdeep.analysis.lengths import measure
from nmtdeep.scoring.texts import NamedText

SOURCE = ["a short line", "one two three four five six seven eight nine ten eleven", "short again"]
REFERENCE = ["the cat sat on the mat today", "it was raining all day long in town", "we went home"]
FIRST = ["the cat sat on a mat today", "it was raining all day long in towns", "they went home"]


def test_each_bucket_is_a_corpus_of_its_own():
    systems = {"one": FIRST, "two": REFERENCE}
    measurement = measure(NamedText("s", SOURCE), NamedText("r", REFERENCE), systems, "bleu")
    short = corpus_bleu([FIRST[0], FIRST[2]], [[REFERENCE[0], REFERENCE[2]]], force=True).score
    long = corpus_bleu([FIRST[1]], [[REFERENCE[1]]], force=True).score
    assert [(row.system, row.words, row.sentences) for row in measurement.rows] == [
        ("one", "1-10", 2), ("one", "11-20", 1), ("two", "1-10", 2), ("two", "11-20", 1),
    ]  # fmt: skip
    assert [row.score for row in measurement.rows] == pytest.approx([short, long, 100, 100])
    assert "tok:13a" in measurement.signature


def test_the_boundaries_of_buckets():
    lines = NamedText("s", [" ".join(["w"] * words) for words in (0, 1, 10, 11, 20, 21, 95)])
    rows = measure(lines, lines, {"s": lines.lines}, "bleu-tok").rows
    assert [(row.words, row.sentences) for row in rows] == [
        ("0", 1), ("1-10", 2), ("11-20", 2), ("21-30", 1), ("91-100", 1),
    ]  # fmt: skip
