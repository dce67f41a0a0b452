"""A line whose log-probability is not finite is an error that names it; no line is left out."""

import json
import math
from typing import Any

import pytest

from nmtdeep.decoding import streams
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.errors import CheckpointError

from .checkpoints import saved

SAID = r"checkpoint_20: computes no finite log-probability for input line 3: use another checkpoint"
SEARCHES: list[dict[str, Any]] = [
    {"beam": 4, "stop": "bound", "n_best": 4},
    {"beam": 1},
    {"beam": 4, "quantize": "int8"},
    {"sampling": True, "top_k": 3, "top_p": 0.9, "n_best": 2},
]


@pytest.fixture(scope="module")
def overflowing(tiny_run, tiny_config, tmp_path_factory):
    """A checkpoint whose embedding of one source word overflows, and lines: the third has it."""
    source = tiny_run.pipeline.source
    others = source.encode("Move.", "raw")
    vocabulary = enumerate(source.vocabulary.tokens)
    own, word = next(each for each in vocabulary if each[1].isalpha() and each[0] not in others)
    assert own in source.encode(word, "raw")
    config, path = tiny_config(sharing="decoder"), tmp_path_factory.mktemp("o") / "checkpoint_20"
    saved(tiny_run, path, config, lambda model: model.source_embedding.weight[own].fill_(3e38))
    return path, ["Move.", "", word, "Move.", "Move."]


@pytest.mark.parametrize("settings", SEARCHES, ids=str)
def test_the_line_and_the_model_are_named(settings, overflowing, translator):
    path, lines = overflowing
    with pytest.raises(CheckpointError, match=SAID):
        list(translator(path, **settings).translate(lines))
    # The other lines of the batch are as ever.
    for each in translator(path, **settings).translate([*lines[:2], *lines[3:]]):
        assert len(each.candidates) == settings.get("n_best", 1)
        assert all(math.isfinite(one.log_prob) for one in each.candidates)


def test_given_translations_too_and_an_ensemble_names_its_models(overflowing, translator, tiny_run):
    path, lines = overflowing
    with pytest.raises(CheckpointError, match=SAID):
        log_probabilities(translator(path), lines, ["x"] * len(lines))
    with pytest.raises(CheckpointError, match=rf"{tiny_run.newer} \+ {path}: computes no finite"):
        list(translator(tiny_run.newer, path).translate(lines))


def test_candidates_without_a_finite_score_are_left_out(translator):
    model = translator(beam=3, n_best=3)
    search = model.searcher

    def worse(batch):
        found = search(batch)
        for hypotheses in found:
            object.__setattr__(hypotheses[1], "log_prob", float("nan"))
        return found

    model.searcher = worse
    (each,) = model.translate(["Move."])
    assert len(each.candidates) == 2
    text = streams.render(each, 0, "text", model.options)
    assert [line.split(" ||| ")[0] for line in text.splitlines()] == ["0", "0"]
    assert "NaN" not in json.dumps([one.log_prob for one in each.candidates])
