"""Forced scores equal the scores of the search and of the whole model."""

import pytest

from nmtdeep.decoding.log_probs import log_probabilities


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
