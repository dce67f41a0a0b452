"""Minimum Bayes risk: the sample with the highest mean chrF against all samples."""

from __future__ import annotations

import pytest
import sacrebleu

from nmtdeep import load
from nmtdeep.decoding.selection import chrf, expected_utilities
from nmtdeep.errors import UserError

pytest.importorskip("fastchrf")


TEXTS = ["ein Hund", "ein brauner Hund läuft", "ein Hund", "xyz", "ein brauner Hund"]


def means(texts: list[str]) -> list[float]:
    """The mean chrF of each text against all, by sacreBLEU."""
    scores = [[sacrebleu.sentence_chrf(one, [other]).score for other in texts] for one in texts]
    return [sum(row) / len(row) for row in scores]


def test_the_utility_is_the_mean_chrf_by_sacrebleu():
    assert expected_utilities("", TEXTS, chrf) == pytest.approx(means(TEXTS))


def test_the_translation_is_the_nearest_of_the_same_samples(tiny_run):
    how = {"device": "cpu", "seed": 7, "temperature": 0.7}
    line = tiny_run.sources[:1]
    (drawn,) = load(tiny_run.path, sampling=True, n_best=12, **how).translations(line)
    texts = [each.text for each in drawn.candidates]
    (chosen,) = load(tiny_run.path, mbr="chrf", samples=12, n_best=2, **how).translations(line)
    order = sorted(range(len(texts)), key=lambda place: -means(texts)[place])
    assert [each.text for each in chosen.candidates] == [texts[place] for place in order[:2]]
    assert chosen.candidates[0].utility == pytest.approx(max(means(texts)))


def test_a_source_tag_is_a_token_before_the_line(tiny_run):
    tag = tiny_run.pipeline.source.vocabulary.tokens[5]
    word, line = tiny_run.pipeline.source.split(tiny_run.sources[0]), tiny_run.sources[0]
    (tagged,) = load(tiny_run.path, device="cpu", source_tag=tag).translate([line])
    (given,) = load(tiny_run.path, device="cpu", input_is="bpe").translate([" ".join([tag, *word])])
    assert tagged == given
    with pytest.raises(UserError, match="no type of the source"):
        load(tiny_run.path, device="cpu", source_tag="<unheard>")
