"""Forced scores: a translation is worth what the search said it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nmtdeep.decoding.forced import log_probabilities
from nmtdeep.decoding.translator import Translator
from nmtdeep.text.vocabulary import EOS

Make = Callable[..., Translator]


@pytest.mark.parametrize("ensemble", [False, True])
def test_a_translation_scores_what_the_search_said(
    ensemble: bool, translator: Make, tiny_run: Any
) -> None:
    paths = [tiny_run.older, tiny_run.newer] if ensemble else []
    found = list(translator(*paths, n_best=3).translate(tiny_run.sources))
    pairs = [(" ".join(one.subwords), candidate) for one in found for candidate in one.candidates]
    forced = translator(*paths, input_is="bpe", max_tokens=100)
    sources = [source for source, _ in pairs]
    targets = [" ".join(candidate.subwords) for _, candidate in pairs]
    scores = list(log_probabilities(forced, sources, targets))
    assert len(scores) == len(pairs) == 3 * len(tiny_run.sources)
    for (_, candidate), score in zip(pairs, scores, strict=True):
        assert score.log_prob == pytest.approx(candidate.log_prob, rel=1e-4, abs=1e-4)
        assert score.tokens == pytest.approx(candidate.each, rel=1e-3, abs=1e-4)


def test_each_pair_alone_without_padding(translator: Make, tiny_run: Any) -> None:
    sources, targets = tiny_run.sources[:5], ["Ja.", "Das ist es nicht.", "", "Nein!", "So so so"]
    made = translator()
    (model,) = made.models
    for source, target, found in zip(
        sources, targets, log_probabilities(made, sources, targets), strict=True
    ):
        ids = tiny_run.pipeline.target.encode(target)
        hidden = model(
            torch.tensor([tiny_run.pipeline.source.encode(source)]),
            torch.tensor([[EOS, *ids[:-1]]]),
        )
        log_probs = model.output(hidden)[0].log_softmax(dim=1)
        expected = [log_probs[place, token].item() for place, token in enumerate(ids)]
        assert found.tokens == pytest.approx(expected, abs=1e-5)
        assert found.log_prob == math.fsum(found.tokens)


def test_nothing_in_nothing_out(translator: Make) -> None:
    assert list(log_probabilities(translator(), [], [])) == []
    with pytest.raises(ValueError, match="zip"):
        list(log_probabilities(translator(), ["a"], []))
