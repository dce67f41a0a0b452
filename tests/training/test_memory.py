"""Out of memory: the same update in smaller batches, or a clear end; the largest batch first."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from data.test_plan import corpus
from torch.testing import assert_close

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Batches, Training
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.batching import split_groups
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.data.plan import Plan
from nmtdeep.data.position import DataPosition
from nmtdeep.errors import OutOfMemoryError
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.memory import UNLIMITED, largest_batch
from nmtdeep.training.ranks import ALONE
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress, optimizer_tensors
from nmtdeep.training.step import Step
from nmtdeep.training.trainer import Trainer
from training.in_ranks import in_ranks
from training.test_divergence import run, shares
from training.tiny import equal, recipe_of, values

TOKENS = 200
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),  # noqa: E501
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("could not create a primitive"),
    RuntimeError("could not create a memory object"),
    MemoryError(),
]  # fmt: skip
SETTINGS: dict[str, Any] = {
    "clip_norm": 0.5,
    "optimizer": {"type": "adam", "epsilon": 1e-3},
    "regularizer": {"type": "inter_similarity", "weight": 0.1},
}


class Memory:
    """Makes a model run out of memory for more sentences times the longer side than `tokens`.

    It fails on the way back, when the decoder's gradients are there and the encoder's are not.
    """

    def __init__(self, model, tokens, error=ERRORS[0]):
        self.tokens, self.error, self.failures, self.needed = tokens, error, 0, 0
        model.source_embedding.register_forward_pre_hook(self.look)
        model.target_embedding.register_forward_pre_hook(self.look)
        model.encoder.norm.register_full_backward_hook(self.fail)

    def look(self, module, inputs):
        self.needed = inputs[0].numel()

    def fail(self, *_):
        if self.needed > self.tokens:
            self.failures += 1
            raise self.error


@pytest.fixture
def batches(make_batch):
    """8 pairs and 3 pairs; the longer side has 6 tokens."""
    generator = torch.Generator().manual_seed(3)

    def sentences(lengths):
        drawn = (torch.randint(3, 20, (length,), generator=generator) for length in lengths)
        return [[*each.tolist(), EOS] for each in drawn]

    return [
        make_batch(sentences([1, 5, 2, 3, 5, 4, 1, 2]), sentences([3, 5, 1, 5, 4, 2, 3, 5])),
        make_batch(sentences([2, 1, 5]), sentences([5, 5, 5])),
    ]


def step_of(model, ranks=ALONE, **changes):
    return Step(model, Training.model_validate(SETTINGS | changes), ranks=ranks)


@pytest.mark.parametrize(
    ("tokens", "parts", "failures"),
    # 8 x 6 = 48 -> 24 -> 12; 3 x 6 = 18 fits in 24 and not in 12; then 6, sentence by sentence.
    [(48, 2, 0), (47, 3, 1), (20, 6, 2), (6, 11, 3)],
)
def test_an_update_divided_after_out_of_memory_is_the_same(
    tokens, parts, failures, tiny_model, batches
):
    whole, short = step_of(tiny_model()), step_of(tiny_model())
    expected = whole.update(RankBatches.single(batches), 1, 0.01)
    memory = Memory(short.model, tokens)
    result = short.update(RankBatches.single(batches), 1, 0.01)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-12)
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)
    assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-12)
    assert result.target_tokens == expected.target_tokens
    assert memory.failures == failures
    assert result.max_tokens == (short.limit.tokens if failures else 0)
    assert sum(len(list(short.limit.parts(batch))) for batch in batches) == parts
    # The next update is divided beforehand.
    again = short.update(RankBatches.single(batches), 1, 0.01)
    assert memory.failures == failures and again.max_tokens == 0


def test_a_row_whose_long_sentences_are_neighbors_is_divided_until_it_fits(tiny_model, make_corpus):
    side = make_corpus([[4] * length + [EOS] for length in (1, 1, 1, 1, 1, 1, 13, 13)])
    pairs = ParallelCorpus(side, side)
    padded, packed = (read_batch(pairs, np.arange(8), packed=packed) for packed in (False, True))
    whole, short = step_of(tiny_model()), step_of(tiny_model())
    expected = whole.update(RankBatches.single([padded]), 1, 0.01)
    # Limits of 20, 10 and 5 tokens are parts of 4, 2 and 1 of the 8 sentences, of which the last
    # have 32, 28 and 14 tokens.
    memory = Memory(short.model, 20)
    result = short.update(RankBatches.single([packed]), 1, 0.01)
    assert (memory.failures, result.max_tokens) == (3, 5)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-12)
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_of_every_allocator_are_recognized(error, tiny_model, batches):
    step = step_of(tiny_model())
    Memory(step.model, 24, error)
    assert step.update(RankBatches.single(batches), 1, 0.01).max_tokens == 24


def test_other_errors_are_raised(tiny_model, batches):
    """An operation that oneDNN does not have is not a lack of memory."""
    message = "could not create a primitive descriptor for a matmul primitive"
    step = step_of(tiny_model())
    Memory(step.model, 24, RuntimeError(message))
    with pytest.raises(RuntimeError, match=message):
        step.update(RankBatches.single(batches), 1, 0.01)


@pytest.mark.parametrize("packed", [False, True])
def test_a_pair_that_does_not_fit_has_the_name_of_its_corpus(tiny_run, packed):
    whole = read_batch(tiny_run.data.corpus("valid"), np.array([2, 4]), packed=packed)
    trainer = trainer_of(tiny_run)
    Memory(trainer.model, 1)
    with pytest.raises(OutOfMemoryError, match="sentence 5 of valid: "):
        trainer.step.update(RankBatches.single([whole.part(1, 2)]), 1, 0.01)


def second_is_short(ranks, model, batches):
    """An update in which rank 1 has the larger batch and the smaller memory."""
    if ranks.rank:
        Memory(model, 20)
    whole = RankBatches.single(batches)
    share = replace(whole, batches=whole.batches[ranks.rank :: 2])
    result = step_of(model, ranks).update(share, 1, 0.01)
    return result, values(model)


@pytest.mark.slow
def test_all_ranks_recompute_if_one_is_out_of_memory(tiny_model, batches):
    alone = step_of(tiny_model())
    alone.update(RankBatches.single(batches[::-1]), 1, 0.01)
    result, weights = in_ranks(2, second_is_short, tiny_model(), batches[::-1])
    assert_close(weights, values(alone.model), rtol=0, atol=1e-12)
    assert result.max_tokens == 48 // 2 // 2


# The largest batch


def trainer_of(tiny_run, *, width=16):
    batches = {"tokens_per_update": 2 * TOKENS, "group_tokens": TOKENS, "max_tokens": TOKENS}
    described = recipe_of(tiny_run, precision="fp32", batches=batches).model_dump()
    described["model"]["width"] = width
    return Trainer(Setup(Recipe.model_validate(described), tiny_run.data))


def test_the_trial_changes_nothing(tiny_run):
    once, twice = trainer_of(tiny_run), trainer_of(tiny_run)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert twice.check_largest_batch(DataPosition()) == 0
    assert torch.equal(torch.rand(3), expected)
    assert all(parameter.grad is None for parameter in twice.model.parameters())
    for trainer in (once, twice):
        run(trainer, shares(tiny_run.data)[:2], Progress())
    assert twice.check_largest_batch(DataPosition()) == 0
    for trainer in (once, twice):
        run(trainer, shares(tiny_run.data)[2:], Progress(update=2))
    assert equal(values(once.model), values(twice.model))
    assert equal(*(optimizer_tensors(each.model, each.step.optimizer) for each in (once, twice)))


@pytest.mark.parametrize("max_tokens", [60, 110, TOKENS])
def test_the_largest_batch_of_a_window_is_found(max_tokens, tiny_config, tiny_run):
    lengths = np.random.default_rng(8).integers(3, 12, (2, 300))
    batches = Batches(group_tokens=TOKENS, tokens_per_update=2 * TOKENS)
    window = Plan(1, batches).window(corpus(lengths), 0, 0)
    training = {"batches": {"max_tokens": max_tokens}}
    recipe = Recipe.model_validate({"model": tiny_config().model_dump(), "training": training})
    every = [
        batch
        for groups in window.updates
        for batch in split_groups(window.lengths, groups, max_tokens)
    ]
    largest = largest_batch(window, Setup(recipe, tiny_run.data))
    assert any(np.array_equal(largest, batch) for batch in every)
    cells = [len(each) * window.lengths[:, each].max(axis=1).sum() for each in (largest, *every)]
    # Longer sentences may make up for some tokens, by their attention.
    assert cells[0] >= 0.9 * max(cells)


def test_a_largest_batch_that_does_not_fit_lowers_the_limit(tiny_run):
    trainer = trainer_of(tiny_run, width=64)  # wider than attention: tokens decide
    memory = Memory(trainer.model, tiny_run.data.corpus("train").longest().tokens)
    limit = trainer.check_largest_batch(DataPosition())
    assert 0 < limit <= TOKENS // 2 and limit == trainer.step.limit.tokens
    memory.failures = 0
    run(trainer, shares(tiny_run.data), Progress())
    assert memory.failures == 0


@pytest.mark.slow
@pytest.mark.parametrize("fits", [1, 19, 20])
def test_on_a_cpu_two_parts_of_the_largest_batch_tell_what_fits(fits, tiny_run, monkeypatch):
    """A pair takes 1,000 bytes, beside 5,000 for all and the 70 that stay."""
    trainer, seen = trainer_of(tiny_run), []
    batch = read_batch(tiny_run.data.corpus("train"), np.arange(20))
    trainer.model.source_embedding.register_forward_pre_hook(
        lambda _module, inputs: seen.append(len(inputs[0]))
    )
    # Adam will hold two numbers of 4 bytes for each one of the model.
    moments = 8 * sum(each.numel() for each in trainer.model.parameters())
    free = moments + 5000 + 1000 * fits + 500
    name = "nmtdeep.training.trainer"
    monkeypatch.setattr(f"{name}.peak_memory", lambda device: 5070 + 1000 * seen[-1])
    monkeypatch.setattr(f"{name}.memory.resident", lambda: 70)
    monkeypatch.setattr(f"{name}.memory.available", lambda: free)
    trainer._lower_limit(batch)
    assert seen == [5, 10]
    assert trainer.step.limit.tokens == (fits * max(batch.longest) if fits < 20 else UNLIMITED)
    monkeypatch.setattr(f"{name}.memory.available", lambda: free - 1000 * fits)
    with pytest.raises(OutOfMemoryError, match=r"out of memory with .*: train a smaller"):
        trainer._lower_limit(batch)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux can measure a peak again")
def test_the_peaks_of_two_parts_foretell_that_of_the_whole(tiny_run):
    recipe = tiny_run.recipe.model_dump()
    recipe["model"] |= {"width": 256}
    for side in ("encoder", "decoder"):
        recipe["model"][side] |= {"depth": 3, "feed_forward": 1024, "heads": 4}
    trainer = Trainer(Setup(Recipe.model_validate(recipe), tiny_run.data))
    pairs = tiny_run.data.corpus("train")
    batch = read_batch(pairs, np.resize(np.arange(len(pairs)), 32))
    quarter, half, whole = (trainer._taken(batch.part(0, count)) for count in (8, 16, 32))
    gradients = sum(each.nbytes for each in trainer.model.parameters())
    assert whole > 2 * gradients  # most of it is the batch's
    assert half + 2 * (half - quarter) == pytest.approx(whole, rel=0.25)
