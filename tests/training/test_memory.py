"""Out of memory: the same update in smaller batches, or a clear end; the largest batch first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from data.test_windows import corpus
from torch.testing import assert_close

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Batches, Training
from nmtdeep.data.batch import Batch, Share, collate, join, read
from nmtdeep.data.batching import split
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.data.windows import DataPosition, Epoch
from nmtdeep.errors import OutOfMemoryError, UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.memory import UNLIMITED, kept_bytes, largest_batch, too_large
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.state import Progress, optimizer_tensors
from nmtdeep.training.step import Step, UpdateResult
from nmtdeep.training.trainer import Trainer
from training.in_ranks import in_ranks
from training.test_divergence import run, shares, weights

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

    def __init__(self, model: Transformer, tokens: int, error: BaseException = ERRORS[0]) -> None:
        self.tokens, self.error, self.failures, self.needed = tokens, error, 0, 0
        model.source_embedding.register_forward_pre_hook(self.look)
        model.target_embedding.register_forward_pre_hook(self.look)
        model.encoder.norm.register_full_backward_hook(self.fail)

    def look(self, module: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        self.needed = inputs[0].numel()

    def fail(self, *_: Any) -> None:
        if self.needed > self.tokens:
            self.failures += 1
            raise self.error


@pytest.fixture
def batches(make_batch: Callable[..., Batch]) -> list[Batch]:
    """8 pairs and 3 pairs; the longer side has 6 tokens."""
    generator = torch.Generator().manual_seed(3)

    def sentences(lengths: list[int]) -> list[list[int]]:
        return [
            [*torch.randint(3, 20, (length,), generator=generator).tolist(), EOS]
            for length in lengths
        ]

    return [
        make_batch(sentences([1, 5, 2, 3, 5, 4, 1, 2]), sentences([3, 5, 1, 5, 4, 2, 3, 5])),
        make_batch(sentences([2, 1, 5]), sentences([5, 5, 5])),
    ]


def step_of(model: Transformer, ranks: Ranks = ALONE, **changes: Any) -> Step:
    return Step(model, Training.model_validate(SETTINGS | changes), ranks=ranks)


def values(model: Transformer) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    ("tokens", "parts", "failures"),
    # 8 x 6 = 48 -> 24 -> 12; 3 x 6 = 18 fits in 24 and not in 12; then 6, sentence by sentence.
    [(48, 2, 0), (47, 3, 1), (20, 6, 2), (6, 11, 3)],
)
def test_an_update_divided_after_out_of_memory_is_the_same(
    tokens: int, parts: int, failures: int, tiny_model: Any, batches: list[Batch]
) -> None:
    whole, short = step_of(tiny_model()), step_of(tiny_model())
    expected = whole.update(Share.whole(batches), 1, 0.01)
    memory = Memory(short.model, tokens)
    result = short.update(Share.whole(batches), 1, 0.01)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-12)
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)
    assert result.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-12)
    assert result.target_tokens == expected.target_tokens
    assert memory.failures == failures
    assert result.max_tokens == (short.limit.tokens if failures else 0)
    assert sum(len(list(short.limit.parts(batch))) for batch in batches) == parts
    # The next update is divided beforehand.
    again = short.update(Share.whole(batches), 1, 0.01)
    assert memory.failures == failures and again.max_tokens == 0


def test_a_row_whose_long_sentences_are_neighbors_is_divided_until_it_fits(
    tiny_model: Any, make_corpus: Callable[..., Any]
) -> None:
    side = make_corpus([[4] * length + [EOS] for length in (1, 1, 1, 1, 1, 1, 13, 13)])
    pairs = ParallelCorpus(side, side)
    padded, rows = (form(pairs, np.arange(8)) for form in (collate, join))
    whole, short = step_of(tiny_model()), step_of(tiny_model())
    expected = whole.update(Share.whole([padded]), 1, 0.01)
    # Limits of 20, 10 and 5 tokens are parts of 4, 2 and 1 of the 8 sentences, of which the last
    # have 32, 28 and 14 tokens.
    memory = Memory(short.model, 20)
    result = short.update(Share.whole([rows]), 1, 0.01)
    assert (memory.failures, result.max_tokens) == (3, 5)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-12)
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)


@pytest.mark.parametrize("error", ERRORS, ids=str)
def test_errors_of_every_allocator_are_recognized(
    error: BaseException, tiny_model: Any, batches: list[Batch]
) -> None:
    step = step_of(tiny_model())
    Memory(step.model, 24, error)
    assert step.update(Share.whole(batches), 1, 0.01).max_tokens == 24


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 shapes cannot be multiplied",
        # An operation that oneDNN does not have, not a lack of memory.
        "could not create a primitive descriptor for a matmul primitive",
    ],
)
def test_other_errors_are_raised(message: str, tiny_model: Any, batches: list[Batch]) -> None:
    step = step_of(tiny_model())
    Memory(step.model, 24, RuntimeError(message))
    with pytest.raises(RuntimeError, match=message):
        step.update(Share.whole(batches), 1, 0.01)


def test_a_pair_that_does_not_fit_is_numbered(tiny_model: Any, batches: list[Batch]) -> None:
    step = step_of(tiny_model())
    Memory(step.model, 5)
    with pytest.raises(OutOfMemoryError, match=r"^training sentence 1: out of memory with 6"):
        step.update(Share.whole(batches[:1]), 1, 0.01)


@pytest.mark.parametrize("rows", [False, True])
def test_a_pair_that_does_not_fit_has_the_name_of_its_corpus(tiny_run: Any, rows: bool) -> None:
    whole = read(tiny_run.data.corpus("valid"), np.array([2, 4]), rows=rows)
    assert str(too_large(whole)).startswith("a batch of 2 pairs of valid: out of memory with ")
    assert str(too_large(whole.part(1, 2))).startswith("training sentence 5 of valid: out of ")


def second_is_short(
    ranks: Ranks, model: Transformer, batches: list[Batch], sharding: str
) -> tuple[UpdateResult, dict[str, torch.Tensor]]:
    """An update in which rank 1 has the larger batch and the smaller memory."""
    if ranks.rank:
        Memory(model, 20)
    whole = Share.whole(batches)
    own = whole.batches[ranks.rank :: 2]
    share = Share(own, whole.target_tokens, whole.padded_tokens, whole.real_tokens, passes=1)
    result = step_of(model, ranks, sharding=sharding).update(share, 1, 0.01)
    return result, values(model)


def test_all_ranks_recompute_if_one_is_out_of_memory(tiny_model: Any, batches: list[Batch]) -> None:
    alone = step_of(tiny_model())
    alone.update(Share.whole(batches[::-1]), 1, 0.01)
    result, weights = in_ranks(2, second_is_short, tiny_model(), batches[::-1], "none")
    assert_close(weights, values(alone.model), rtol=0, atol=1e-12)
    assert result.max_tokens == 48 // 2 // 2


def test_a_shard_out_of_memory_ends_all_with_a_hint(tiny_model: Any, batches: list[Batch]) -> None:
    message = r"^rank 1 of 2: a batch of 8 pairs: out of memory with .* pass --max-tokens 24$"
    with pytest.raises(UserError, match=message):
        in_ranks(2, second_is_short, tiny_model(), batches[::-1], "full")


# The largest batch


def trainer_of(tiny_run: Any, **training: Any) -> Trainer:
    batches = {"tokens_per_update": 2 * TOKENS, "group_tokens": TOKENS, "max_tokens": TOKENS}
    settings = {"precision": "fp32", "batches": batches, **training}
    recipe = Recipe.model_validate(tiny_run.recipe.model_dump() | {"training": settings})
    return Trainer(recipe, tiny_run.data)


def test_the_trial_changes_nothing(tiny_run: Any) -> None:
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
    assert all(map(torch.equal, weights(once), weights(twice)))
    moments = [optimizer_tensors(each.model, each.step.optimizer) for each in (once, twice)]
    assert all(torch.equal(moments[0][name], moments[1][name]) for name in moments[0])


def test_the_largest_batch_of_a_window_is_found(tiny_config: Any) -> None:
    model, random = tiny_config().model_dump(), np.random.default_rng(8)
    lengths = random.integers(3, 12, (2, 300))
    batches = Batches(group_tokens=TOKENS, tokens_per_update=2 * TOKENS)
    window = Epoch(corpus(lengths), 1, 0).window(0, batches)

    for max_tokens in (60, 110, TOKENS):
        training = {"batches": {"max_tokens": max_tokens}}
        recipe = Recipe.model_validate({"model": model, "training": training})

        def kept(batch: np.ndarray, recipe: Recipe = recipe) -> float:
            return kept_bytes(recipe, len(batch), *window.lengths[:, batch].max(axis=1).tolist())

        every = [
            kept(batch)
            for groups in window.updates
            for batch in split(window.lengths, groups, max_tokens)
        ]
        assert kept(largest_batch(window, recipe)) == max(every)


def test_a_largest_batch_that_does_not_fit_lowers_the_limit(tiny_run: Any) -> None:
    trainer = trainer_of(tiny_run)
    memory = Memory(trainer.model, tiny_run.data.corpus("train").longest().tokens)
    limit = trainer.check_largest_batch(DataPosition())
    assert 0 < limit <= TOKENS // 2 and limit == trainer.step.limit.tokens
    memory.failures = 0
    run(trainer, shares(tiny_run.data), Progress())
    assert memory.failures == 0


def test_on_a_cpu_the_estimate_lowers_the_limit_before_the_trial(tiny_run: Any) -> None:
    trainer = trainer_of(tiny_run)
    assert trainer.check_largest_batch(DataPosition(), free=10**9) == 0
    assert trainer.step.limit.tokens == UNLIMITED
    limits = []
    with pytest.raises(OutOfMemoryError, match=r"out of memory with .*: train a smaller"):
        for free in range(1_500_000, 0, -50_000):
            limits.append(trainer_of(tiny_run).check_largest_batch(DataPosition(), free=free))
    fits, divided = limits.count(0), [limit for limit in limits if limit]
    assert fits and limits[fits:] == divided == sorted(divided, reverse=True)
    assert divided[0] < TOKENS
