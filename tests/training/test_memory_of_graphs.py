"""Out of memory with batches that are filled up, and with work that is recorded."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.capacity import Capacity
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.loop import measured
from nmtdeep.training.memory import UNLIMITED
from nmtdeep.training.ranks import ALONE
from nmtdeep.training.validation import validate
from training.in_ranks import in_ranks
from training.test_memory import ERRORS, Memory, step_of, trainer_of
from training.tiny import values


@pytest.fixture
def filled(make_corpus):
    """Four batches of seven pairs each, filled up to one capacity."""
    generator = np.random.default_rng(4)
    sides = [
        make_corpus([[*generator.integers(3, 20, length), EOS] for length in lengths])
        for lengths in generator.integers(1, 9, (2, 28))
    ]
    corpus, capacity = ParallelCorpus(*sides), Capacity((80, 80), 40, (10, 10))
    return [
        read_batch(corpus, np.arange(7 * number, 7 * number + 7), packed=True, capacity=capacity)
        for number in range(4)
    ]


@pytest.mark.parametrize("tokens", [79, 39, 9])
def test_a_filled_batch_can_be_divided(tokens, tiny_model, filled):
    whole, short = (step_of(tiny_model(), regularizer="none") for _ in range(2))
    expected = whole.update(RankBatches.single(filled[:1]), 1, 0.01)
    memory = Memory(short.model, tokens)
    short.passes._records = False
    result = short.update(RankBatches.single(filled[:1]), 1, 0.01)
    assert memory.failures > 0 and 0 < result.max_tokens <= 80 // 2
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-12)
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)


def without_memory(ranks, model, batches):
    """Three updates of which the second has no memory for recorded work in the last rank."""
    step, results = step_of(model, ranks, regularizer="none"), []
    for number in (1, 2, 3):
        if number == 2 and ranks.rank == ranks.size - 1:
            memory = Memory(model, 1)
            step.passes.add = forgiving(step.passes.add, memory)
        whole = RankBatches.single(batches)
        share = replace(whole, batches=whole.batches[ranks.rank :: ranks.size])
        results.append(step.update(share, number, 0.01))
    return results, values(model)


def forgiving(add, memory):
    """Memory runs out once."""

    def added(batch):
        try:
            return add(batch)
        finally:
            memory.tokens = UNLIMITED

    return added


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_update_is_computed_again_without_records(ranks, tiny_model, filled):
    alone = step_of(tiny_model(), regularizer="none")
    for number in (1, 2, 3):
        alone.update(RankBatches.single(filled), number, 0.01)
    arguments = without_memory, tiny_model(), filled
    results, weights = (
        without_memory(ALONE, *arguments[1:]) if ranks == 1 else in_ranks(ranks, *arguments)
    )
    assert_close(weights, values(alone.model), rtol=0, atol=1e-12)
    assert [result.unrecorded for result in results] == [False, True, False]
    assert not any(result.max_tokens for result in results)


def test_a_validation_has_the_memory_of_graphs_if_it_needs_it(tiny_run):
    trainer, failed = trainer_of(tiny_run), []

    def fail_once(*_):
        if not failed:
            failed.append(True)
            raise ERRORS[0]

    expected = validate(trainer.validation_model(), trainer.setup)
    trainer.model.encoder.norm.register_forward_pre_hook(fail_once)
    with pytest.raises(torch.OutOfMemoryError):
        measured(trainer)
    failed.clear()
    for _ in range(2):
        trainer.step.passes.graphs.run("work", lambda _: None)
    assert measured(trainer) == expected and not len(trainer.step.passes.graphs)
