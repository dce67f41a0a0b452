"""Minimum Bayes risk: the sample with the highest mean chrF against all samples."""

from __future__ import annotations

import sys

import pytest
import sacrebleu

from nmtdeep import load
from nmtdeep.cli.errors import as_user_error
from nmtdeep.config.decoding import decoding_options
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


def test_what_has_no_effect_on_samples_is_refused():
    for given, problem in (
        ({"mbr": "chrf", "samples": 4, "n_best": 8}, "n_best: 8 translations need as many"),
        ({"sampling": True, "samples": 9}, "samples: has no effect without mbr or rerank"),
        ({"sampling": True, "lenpen": 1.0}, "lenpen: has no effect on samples"),
    ):
        with pytest.raises(UserError, match=problem):
            decoding_options(given)


def test_a_missing_package_is_said_before_anything_is_drawn(tiny_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastchrf", None)
    with pytest.raises(ModuleNotFoundError) as raised:
        load(tiny_run.path, mbr="chrf", device="cpu")
    assert "nmtdeep[mbr]" in str(as_user_error(raised.value))


def test_two_iterators_draw_the_same(tiny_run):
    model, lines = load(tiny_run.path, sampling=True, seed=7, device="cpu"), tiny_run.sources[:3]
    one, other = model.translations(lines), model.translations(lines)
    first = next(one)
    assert [first, *one] == list(other) == list(model.translations(lines))


def test_a_source_is_encoded_once_for_all_samples(tiny_run):
    model, calls = load(tiny_run.path, mbr="chrf", samples=6, device="cpu"), []
    encoder = model._translator.searcher.models[0].encoder
    encoder.register_forward_hook(lambda *_: calls.append(1))
    model.translate(tiny_run.sources[:1])
    assert calls == [1]
