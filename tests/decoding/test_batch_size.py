"""The size of a search's batches, and batches that do not fit in memory."""

import numpy as np
import pytest
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.searcher import Searcher, SourceBatch, fitting_tokens
from nmtdeep.model.build import build, initialize


@pytest.fixture
def model(tiny_config):
    built = build(tiny_config(), source_types=40, target_types=40)
    initialize(built, tiny_config(), seed=5)
    return built


def test_tokens_fit_the_memory(model):
    types, width = model.output.weight.shape
    layers = len(model.decoder.layers)
    # Keys and values of two target tokens, twice and once more, and of a source token; logits.
    each = 4 * layers * 2 * width * 7 + 4 * types * 3 / 8
    assert fitting_tokens([model], 10_000 * each) == 10_000
    assert fitting_tokens([model, model], 20_000 * each) == 10_000
    assert fitting_tokens([model.to(torch.bfloat16)], 1e7 * each) == 114_688
    assert fitting_tokens([model], 0) == 4096


def test_options_have_the_first_word(model):
    assert Searcher([model], DecodingOptions(max_tokens=77)).max_tokens == 77
    assert Searcher([model], DecodingOptions(beam=2)).max_tokens == 8192
    assert Searcher([model], DecodingOptions(beam=1)).max_tokens == 4096
    assert Searcher([model], DecodingOptions(sampling=True)).max_tokens == 4096


class Small(Searcher):
    """A searcher on a device that holds `most` rows."""

    most = 8

    def _step(self, tokens, state):
        if len(tokens) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super()._step(tokens, state)


@pytest.mark.parametrize("prefixed", [False, True])
def test_a_batch_that_does_not_fit_is_searched_in_halves(model, prefixed):
    source = np.random.default_rng(1).integers(3, 40, (7, 6))
    prefix = np.random.default_rng(2).integers(3, 40, (7, 2)) if prefixed else None
    options = DecodingOptions(beam=4, max_length_constant=3)
    expected, found = (
        [item for each in kind([model], options)(SourceBatch(source, 0, prefix)) for item in each]
        for kind in (Searcher, Small)
    )
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    scores = [each.score for each in expected]
    assert [each.score for each in found] == pytest.approx(scores, abs=1e-5)


def test_a_sentence_that_does_not_fit_is_an_error(model):
    searcher = Small([model], DecodingOptions(beam=9, max_length_constant=3))
    with pytest.raises(torch.OutOfMemoryError):
        searcher(SourceBatch(np.full((3, 4), 5), 0))
