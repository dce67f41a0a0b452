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


@pytest.mark.parametrize("name", VARIANTS)
def test_gradients_are_those_of_padded_batches(tiny_model, corpus, name):
    """Also of batches with padding behind the sentences, up to a capacity."""
    every, capacity = np.arange(4), Capacity((30, 40), 9, (9, 9))
    expected = gradients(tiny_model(**VARIANTS[name]), [read_batch(corpus, every)])
    for filled in (None, capacity):
        packed = read_batch(corpus, every, packed=True, capacity=filled)
        assert packed.capacity == filled
        found = gradients(tiny_model(**VARIANTS[name]), [packed])
        assert_close(found, expected, rtol=1e-12, atol=1e-12)


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
