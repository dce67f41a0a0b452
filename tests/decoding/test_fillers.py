"""The types that pad a vocabulary are in no translation, however probable a model finds them."""

from typing import Any

import pytest
import torch

from nmtdeep.decoding.log_probs import log_probabilities
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.model.build import build
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import UNK, Vocabulary

SEARCHES: list[dict[str, Any]] = [
    {"beam": 1},
    {"sampling": True, "n_best": 4},
    {"beam": 3, "allow_unk": True},
]


@pytest.fixture(scope="module")
def pipeline(tiny_run):
    """That of the tiny run with fillers: one that was at the end, one in the middle."""
    tokens = list(tiny_run.pipeline.target.vocabulary.tokens)
    tokens = [*tokens[:5], "<filler12>", *tokens[5:], "<filler0>"]
    vocabulary = Vocabulary(tuple(tokens), (1,) * len(tokens))
    made = TextPipeline.load(tiny_run.newer / "text")
    for side in (made.source, made.target):
        object.__setattr__(side, "vocabulary", vocabulary)
    return made


@pytest.fixture(scope="module")
def translating(tiny_config, pipeline):
    """A translator of a model that expects the fillers everywhere."""
    torch.manual_seed(5)
    types = len(pipeline.target.vocabulary)
    config = tiny_config(embeddings={"output_bias": True})
    model = build(config, source_types=types, target_types=types)
    torch.nn.init.normal_(model.target_embedding.weight)
    model.output.bias.data.zero_()[[5, types - 1]] = 20.0
    fillers = pipeline.target.vocabulary.fillers
    return lambda options: Translator(Searcher([model], options, fillers=fillers), pipeline)


@pytest.mark.parametrize("settings", SEARCHES, ids=str)
def test_fillers_are_in_no_translation(settings, translator, translating):
    ours = translating(translator(**settings).options)
    found = [candidate for each in ours.translate(["Move."] * 4) for candidate in each.candidates]
    assert found and not any("<filler" in word for each in found for word in each.subwords)


def test_a_translation_has_the_log_probability_that_was_printed(pipeline, translator, translating):
    options = translator(beam=4, n_best=4).options.model_copy(update={"input_is": "bpe"})
    ours = translating(options)
    (each,) = ours.translate(["M@@ o"])
    texts = [" ".join(candidate.subwords) for candidate in each.candidates]
    read = log_probabilities(ours, [each.source] * len(texts), texts)
    printed = [candidate.log_prob for candidate in each.candidates]
    assert [sum(values) for values in read] == pytest.approx(printed, rel=1e-4)
    assert UNK not in pipeline.target.vocabulary.ids(each.candidates[0].subwords)
