"""Packed batches, without padding: the same updates as padded ones."""

import numpy as np
import pytest
from model.choices import VARIANTS
from torch import nn
from torch.testing import assert_close

from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.batching import batches_of_update
from nmtdeep.data.capacity import Capacity
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.step import Step

SOURCES = [[5, 6, 7, 8, EOS], [9, EOS], [4, 3, 9, 8, 7, 6, EOS], [3, 4, EOS]]
TARGETS = [[7, EOS], [8, 8, 4, 6, EOS], [3, 9, EOS], [5, 4, 3, 7, 6, 9, 8, EOS]]


@pytest.fixture
def corpus(make_corpus):
    return ParallelCorpus(make_corpus(SOURCES), make_corpus(TARGETS))


def gradients(model, batches):
    for module in model.modules():
        if isinstance(module, nn.Dropout):  # whose noise depends on the shape
            module.p = 0.0
    step = Step(model, Training())
    sums = step.forward_backward(RankBatches.single(batches), 1).sums
    return sums, {name: each.grad for name, each in model.named_parameters()}


def test_a_row_has_the_ids_of_its_sentences(corpus):
    batch = read_batch(corpus, np.array([2, 0]), packed=True)
    assert batch.source.tolist() == [[*SOURCES[2], *SOURCES[0]]]
    assert batch.target_output.tolist() == [[*TARGETS[2], *TARGETS[0]]]
    assert batch.target_input.tolist() == [[EOS, *TARGETS[2][:-1], EOS, *TARGETS[0][:-1]]]
    assert (batch.sentences, batch.longest, batch.cells) == (2, (7, 3), 12)
    assert (batch.target_tokens, batch.padded_tokens, batch.real_tokens) == (5, 17, 17)
    padded = read_batch(corpus, np.array([2, 0]))
    assert batch.packing is not None
    assert (
        batch.packing[0].places.tolist() == (padded.source != 0).flatten().nonzero()[:, 0].tolist()
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_those_of_padded_batches(tiny_model, corpus, name):
    """Also of batches with padding behind the sentences, up to a capacity."""
    every, capacity = np.arange(4), Capacity((30, 40), 9, (9, 9))
    expected = gradients(tiny_model(**VARIANTS[name]), [read_batch(corpus, every)])
    for filled in (None, capacity):
        packed = read_batch(corpus, every, packed=True, capacity=filled)
        assert packed.capacity == filled
        assert_close(gradients(tiny_model(**VARIANTS[name]), [packed]), expected)


def test_parts_of_a_row_have_its_gradients(tiny_model, corpus):
    packed = read_batch(corpus, np.arange(4), packed=True)
    parts = [packed.part(0, 1), packed.part(1, 4)]
    assert sum(part.target_tokens for part in parts) == packed.target_tokens
    assert_close(gradients(tiny_model(), parts), gradients(tiny_model(), [packed]))


def test_packed_batches_have_every_sentence_and_equal_shares():
    lengths = np.random.default_rng(1).integers(1, 60, (2, 500)).astype(np.int32)
    groups = list(np.split(np.random.default_rng(2).permutation(500), [100, 300]))
    tokens = int(lengths.sum(axis=1).max())
    for limit, ranks, count in ((tokens, 1, 1), (tokens, 2, 2), (tokens // 3 + 1, 2, 4)):
        batches = batches_of_update(lengths, groups, limit, packed=True, ranks=ranks)
        assert len(batches) == count
        assert sorted(np.concatenate(batches).tolist()) == list(range(500))
        shares = [lengths[:, batch].sum() for batch in batches]
        assert max(shares) < 1.1 * min(shares)
