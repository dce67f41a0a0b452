"""From raw lines to raw lines with a tiny run: order, batching, ensembles, blank and long lines."""

import math

import numpy as np
import pytest

from nmtdeep.checkpoint import load_model
from nmtdeep.config.decoding import RECIPE_DEFAULTS
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.searcher import SourceBatch
from nmtdeep.decoding.translation import Candidate
from nmtdeep.errors import UserError

LINES = [
    "The flow meter units to send.",
    "",
    "Move.",
    "Blocking\u2028local\u0085data\x0baway",
    "   ",
    "a\rb",
    "The hostname of your broker, or the address of it; and what is more, its port & its name!",
    "日本語 🙂 żółć",
]


def alike(one, other):
    """The same translations, their scores to within the order of float32 sums."""
    pairs = list(zip(one.candidates, other.candidates, strict=True))
    return all(
        a.subwords == b.subwords
        and a.text == b.text
        and math.isclose(a.score, b.score, rel_tol=1e-5, abs_tol=1e-5)
        for a, b in pairs
    )


@pytest.mark.parametrize("settings", [{"n_best": 3}, {"sampling": True, "n_best": 2}])
def test_every_line_is_translated_in_order_and_blank_lines_stay_blank(settings, translator):
    translations = list(translator(**settings).translate(LINES))
    assert [translation.source for translation in translations] == LINES
    for line, translation in zip(LINES, translations, strict=True):
        assert len(translation.candidates) == settings["n_best"]
        assert "\n" not in translation.text
        if not line.strip():
            assert set(translation.candidates) == {Candidate("", "", (), 0.0, 0.0)}


@pytest.mark.parametrize("settings", [{"max_tokens": 90}, {"beam": 1}])
def test_batching_changes_nothing(settings, translator, tiny_run):
    lines, short = [*LINES, *tiny_run.sources[:4]], {"max_length_factor": 0.3}
    usual = translator(n_best=1, **short, **{**settings, "max_tokens": 4096})
    together = list(usual.translate(lines))
    model = translator(n_best=1, **short, **settings)
    singly = [next(iter(model.translate([line]))) for line in lines[:8]]
    for other in (model.translate(lines), model.translate(lines, buffer=3)):
        assert all(map(alike, together, other))
    assert all(map(alike, together, singly))
    assert len({translation.text for translation in together}) > 3  # they depend on the source


def test_a_score_is_the_sum_divided_by_the_penalty(translator, tiny_run):
    settings = {"lenpen": 0.7, "n_best": 3}
    for translation in translator(lenpen_form="length", **settings).translate(tiny_run.sources):
        for candidate in translation.candidates:
            assert len(candidate.each) == len(candidate.subwords) + 1
            assert candidate.log_prob == pytest.approx(sum(candidate.each), rel=1e-5)
            assert candidate.score == pytest.approx(candidate.log_prob / len(candidate.each) ** 0.7)
    for translation in translator(lenpen_form="none", **settings).translate(tiny_run.sources):
        assert all(candidate.score == candidate.log_prob for candidate in translation.candidates)


# Prefixes

PREFIXED = [
    ("Move.", "Send"),
    ("", "a"),
    ("Move it to the port.", ""),
    (LINES[0], "the data"),
    *[("Send.", "n")] * 3,
]
COLUMNS = [f"{source}\t{prefix}" for source, prefix in PREFIXED]


@pytest.mark.parametrize(
    "settings",
    [{"beam": 1}, {"n_best": 3}, {"sampling": True, "n_best": 2}],
    ids=str,
)
def test_every_candidate_starts_with_its_prefix_whose_score_counts(settings, translator, tiny_run):
    with translator(prefix_column=True, **settings) as model:
        translations = list(model.translate([*COLUMNS, "Send."]))
    assert [each.source for each in translations] == [*(source for source, _ in PREFIXED), "Send."]
    split, forced = tiny_run.pipeline.target.split, translator(input_is="bpe")
    for (source, prefix), each in zip(PREFIXED, translations, strict=False):
        start = tuple(split(prefix)) if source else ()
        assert all(candidate.subwords[: len(start)] == start for candidate in each.candidates)
        if source:
            best = each.candidates[0]
            pair = [" ".join(each.subwords)], [" ".join(best.subwords)]
            (expected,) = log_probabilities(forced, *pair)
            assert best.each == pytest.approx(expected, abs=1e-4)
    assert split("Send") and split("the data")
    assert not translations[1].text


def test_the_end_follows_a_prefix_as_long_as_a_translation_may_be(translator):
    model = translator(prefix_column=True, max_length_factor=0.0, max_length_constant=2)
    (translation,) = model.translate(["Send.\tthe data of the port and the address of the port"])
    assert translation.text == "the data of the port and the address of the port"


def test_the_first_piece_of_a_long_line_has_the_prefix(translator):
    model = translator(prefix_column=True, max_source_tokens=20, beam=1)
    ((source, *_), (free, *_)) = (
        list(model.translate([line])) for line in (f"{LINES[6]}\tthe data", LINES[6])
    )
    assert model.counts.cut == 2
    assert source.text.startswith("the data")
    assert not free.text.startswith("the data")


@pytest.mark.parametrize(
    ("line", "word"), [("Send.\tthe\tdata", "two columns"), ("Send.\tthe 日", "does not know")]
)
def test_a_wrong_prefix_is_an_error_that_names_its_line(line, word, translator):
    with pytest.raises(UserError, match=rf"input line 2: .*{word}"):
        list(translator(prefix_column=True).translate(["Send.\tthe data", line]))


# Long lines


def test_a_long_line_is_translated_in_pieces(translator, tiny_run):
    whole = tiny_run.pipeline.source.split(LINES[6])
    limit = len(whole) // 2 - 1  # so that it takes three
    model = translator(max_source_tokens=limit, n_best=2)
    (translation,) = model.translate([LINES[6]])
    size = math.ceil(len(whole) / 3)
    pieces = [" ".join(whole[first : first + size]) for first in range(0, len(whole), size)]
    assert len(pieces) == 3
    parts = list(translator(input_is="bpe", n_best=2).translate(pieces))
    for rank, candidate in enumerate(translation.candidates):
        each = [part.candidates[rank] for part in parts]
        assert candidate.subwords == sum((piece.subwords for piece in each), ())
        assert candidate.text == " ".join(piece.text for piece in each)
        assert candidate.log_prob == pytest.approx(sum(piece.log_prob for piece in each), rel=1e-4)
    assert translation.subwords == tuple(whole)
    assert model.counts.cut == 1


def test_a_truncated_line_is_translated_as_its_beginning(translator, tiny_run):
    whole = tiny_run.pipeline.source.split(LINES[6])
    model = translator(max_source_tokens=5, long_lines="truncate")
    (translation,) = model.translate([LINES[6]])
    (beginning,) = translator(input_is="bpe").translate([" ".join(whole[:5])])
    assert alike(translation, beginning)
    assert model.counts.cut == 1


def test_a_long_line_can_be_an_error_that_names_it(translator, tiny_run):
    count = len(tiny_run.pipeline.source.split(LINES[6]))
    model = translator(max_source_tokens=count, long_lines="error")
    assert len(list(model.translate(LINES))) == len(LINES)
    assert model.counts.cut == 0
    model = translator(max_source_tokens=count - 1, long_lines="error")
    with pytest.raises(UserError, match=f"input line 7: {count} tokens, more than {count - 1}"):
        list(model.translate(LINES, buffer=2))


# Options


def test_options_default_to_those_of_the_recipe(tiny_run):
    options = RECIPE_DEFAULTS.with_recipe(load_model(tiny_run.newer).recipe)
    recipe = tiny_run.recipe.decoding
    for name, value in recipe.model_dump().items():
        assert getattr(options, name) == value
    assert (options.beam, options.max_length_constant) == (3, 4)  # not the defaults
    assert options.input_is == "raw"


# Several processes


def test_draws_of_a_batch_depend_on_its_number_and_the_seed_alone(translator, tiny_run):
    searcher, other = (translator(sampling=True, n_best=2, seed=seed).searcher for seed in (1, 2))
    ids = [np.array([tiny_run.pipeline.source.encode(line)]) for line in tiny_run.sources[:3]]
    batches = [SourceBatch(source, number) for number, source in enumerate([*ids, ids[0]])]
    draws = [searcher(batch) for batch in batches]
    assert [searcher(batch) for batch in reversed(batches)] == draws[::-1]
    assert draws[0] != draws[3]
    assert [other(batch) for batch in batches] != draws
