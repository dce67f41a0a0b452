"""`<unk>` is in a translation only if asked for; its probability is scored as any other."""

import numpy as np
import pytest
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.searcher import Searcher, SourceBatch
from nmtdeep.model.build import build
from nmtdeep.text.vocabulary import UNK

# <pad>, </s>, <unk> and one word: half of what may continue a translation is <unk>.
TYPES = 4
SEARCHES = [{"beam": 1}, {"beam": 4, "n_best": 4}, {"sampling": True, "n_best": 4}]


@pytest.mark.parametrize("settings", SEARCHES)
def test_unk_appears_only_if_allowed(tiny_config, settings):
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(build(tiny_config(), source_types=TYPES, target_types=TYPES))
        torch.nn.init.normal_(models[-1].target_embedding.weight)
    batch = SourceBatch(np.random.default_rng(1).integers(1, TYPES, (8, 6)).tolist(), 0)

    def tokens(**more):
        short = {"max_length_factor": 1, "max_length_constant": 2}
        options = DecodingOptions(device="cpu", **short, **settings, **more)
        found = [each for model in models for each in Searcher([model], options)(batch)]
        return {id for each in found for hypothesis in each for id in hypothesis.tokens}

    assert UNK not in tokens()
    assert UNK in tokens(allow_unk=True)


def test_a_given_translation_is_scored_with_its_unknown_words(translator):
    allowed, forbidden = translator(allow_unk=True), translator()
    scores = [log_probabilities(each, ["Move."], ["猫"]) for each in (allowed, forbidden)]
    assert UNK in allowed.pipeline.target.encode("猫")
    assert scores[0] == scores[1]
    assert np.isfinite(scores[0][0]).all()
