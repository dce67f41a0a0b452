"""Forced scores equal the scores of the search and of the whole model."""

import pytest
import torch

from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.text.vocabulary import EOS


@pytest.mark.parametrize(
    ("ensemble", "precision", "error"),
    # In bf16: two roundings of logits that are below 16.
    [(False, "fp32", 1e-4), (True, "fp32", 1e-4), (False, "bf16", 2 * 2**-8 * 16)],
)
def test_forced_scores_equal_those_of_the_search(ensemble, precision, error, translator, tiny_run):
    paths = [tiny_run.older, tiny_run.newer] if ensemble else []
    searching = translator(*paths, n_best=3, precision=precision)
    pairs = [
        (" ".join(translation.subwords), candidate)
        for translation in searching.translate(tiny_run.sources)
        for candidate in translation.candidates
    ]
    forced = translator(*paths, input_is="bpe", max_tokens=100, precision=precision)
    sources = [source for source, _ in pairs]
    targets = [" ".join(candidate.subwords) for _, candidate in pairs]
    scores = log_probabilities(forced, sources, targets)
    assert len(scores) == len(pairs) == 3 * len(tiny_run.sources)
    for (_, candidate), score in zip(pairs, scores, strict=True):
        assert score == pytest.approx(candidate.each, rel=1e-3, abs=error)


def test_padding_does_not_change_a_score(translator, tiny_run):
    sources, targets = tiny_run.sources[:5], ["Ja.", "Das ist es nicht.", "", "Nein!", "So so so"]
    translating = translator()
    (model,) = translating.searcher.models
    scores = log_probabilities(translating, sources, targets)
    for source, target, score in zip(sources, targets, scores, strict=True):
        ids = tiny_run.pipeline.target.encode(target)
        hidden = model(
            torch.tensor([tiny_run.pipeline.source.encode(source)]),
            torch.tensor([[EOS, *ids[:-1]]]),
        )
        log_probs = model.output(hidden)[0].log_softmax(dim=1)
        expected = [log_probs[place, token].item() for place, token in enumerate(ids)]
        assert score == pytest.approx(expected, abs=1e-5)
