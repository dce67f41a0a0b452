"""The largest batch of the plan runs before the first update, and what does not fit is said."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmtdeep import memory
from nmtdeep.config import Recipe
from nmtdeep.config import model as config
from nmtdeep.data.batching import split
from nmtdeep.data.corpus import DataDirectory, MonolingualCorpus, ParallelCorpus
from nmtdeep.data.windows import Epoch, Place, Window
from nmtdeep.errors import OutOfMemoryError
from nmtdeep.training import rehearsal
from nmtdeep.training.distributed import ALONE
from nmtdeep.training.rehearsal import largest, rehearse
from nmtdeep.training.state import Progress, optimizer_tensors
from nmtdeep.training.trainee import Trainee
from training.test_divergence import run, shares, weights

CPU = torch.device("cpu")
TOKENS = 200


def trainee_of(tiny_run: Any, **training: Any) -> Trainee:
    batches = {"tokens_per_update": 2 * TOKENS, "group_tokens": TOKENS, "max_tokens": TOKENS}
    settings = {"precision": "fp32", "batches": batches, **training}
    recipe = Recipe.model_validate(tiny_run.recipe.model_dump() | {"training": settings})
    return Trainee(recipe, tiny_run.data, CPU, None, ALONE)


def kept(model: config.Model, count: int, source: int, target: int) -> int:
    """By hand, in bytes, for fp32, two heads and no dropout.

    Encoder: two norms, q, k, v and what was read of them, two sums. Decoder: three norms, q, k, v
    and another q, two readings, three sums; k and v of each source token.
    """
    width, inner = model.width, model.encoder.feed_forward
    encoder = model.encoder.depth * (8 * width + inner + 2 * source) * source
    decoder = (12 * width + inner + 2 * (source + target)) * target + 2 * width * source
    return 4 * count * (encoder + model.decoder.depth * decoder)


class Limit:
    """Memory for batches that keep so much."""

    def __init__(self, trainee: Trainee, size: int) -> None:
        self.seen: list[int] = []
        original = trainee.loss_of

        def limited(batch: Any) -> Any:
            sides = batch.source.shape[1], batch.target_output.shape[1]
            self.seen.append(kept(trainee.recipe.model, len(batch.source), *sides))
            if self.seen[-1] > size:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return original(batch)

        trainee.loss_of = limited  # type: ignore[method-assign]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training corpus of sentences so short that many go into a batch."""
    random = np.random.default_rng(8)
    lengths = random.integers(3, 12, (2, 300))
    sides = [
        MonolingualCorpus(
            random.integers(3, 60, side.sum()).astype(np.uint16),
            np.concatenate(([0], np.cumsum(side))),
        )
        for side in lengths
    ]
    monkeypatch.setattr(DataDirectory, "corpus", lambda *_: ParallelCorpus(*sides))


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: None)


def test_nothing_is_changed(tiny_run: Any) -> None:
    once, twice = trainee_of(tiny_run), trainee_of(tiny_run)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    rehearse(twice, Place())
    assert torch.equal(torch.rand(3), expected)
    assert all(one.grad is None for one in twice.model.parameters())
    for trainee in (once, twice):
        run(trainee, shares(tiny_run.data)[:2], Progress())
    rehearse(twice, Place())
    for trainee in (once, twice):
        run(trainee, shares(tiny_run.data)[2:], Progress(update=2))
    assert all(map(torch.equal, weights(once), weights(twice)))
    moments = [optimizer_tensors(one.model, one.optimizer) for one in (once, twice)]
    assert all(torch.equal(moments[0][name], moments[1][name]) for name in moments[0])


def every_batch(trainee: Trainee, max_tokens: int) -> list[int]:
    """What each batch of the epoch that is planned keeps."""
    window = Epoch(trainee.data.corpus("train"), 1, 0).window(
        0, group_tokens=TOKENS, tokens_per_update=2 * TOKENS
    )
    return [
        kept(trainee.recipe.model, len(batch), *window.lengths[:, batch].max(axis=1).tolist())
        for groups in window.updates
        for batch in split(window.lengths, groups, max_tokens)
    ]


@pytest.mark.usefixtures("unmeasured", "short")
@pytest.mark.parametrize("share", [0.9, 0.66, 0.4])
def test_max_tokens_that_is_said_fits(share: float, tiny_run: Any) -> None:
    trainee = trainee_of(tiny_run)
    most = max(every_batch(trainee, TOKENS))
    limit = Limit(trainee, most)
    rehearse(trainee, Place())
    assert limit.seen == [most]
    Limit(trainee, int(share * most))
    with pytest.raises(OutOfMemoryError, match="largest planned, does not fit in memory") as caught:
        rehearse(trainee, Place())
    said = int(str(caught.value).partition("--max-tokens ")[2].partition(",")[0])
    assert share / 2 * TOKENS < said < TOKENS
    assert max(every_batch(trainee, said)) <= share * most


@pytest.mark.usefixtures("unmeasured")
def test_a_corpus_whose_longest_pair_does_not_fit_is_told_so(tiny_run: Any) -> None:
    trainee = trainee_of(tiny_run)
    Limit(trainee, 10)
    with pytest.raises(OutOfMemoryError, match="no smaller one would: train a smaller model"):
        rehearse(trainee, Place())


@pytest.mark.usefixtures("short")
def test_what_a_machine_lacks_is_measured_before_it_kills(
    tiny_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainee = trainee_of(tiny_run)
    monkeypatch.setattr(rehearsal, "_tried", lambda *_: pytest.fail("was not measured"))
    monkeypatch.setattr(memory, "available", lambda: 300_000)
    said = r"needs \d+ kB of memory and 300 kB is free: give --max-tokens [1-9]\d*, which fits"
    with pytest.raises(OutOfMemoryError, match=said):
        rehearse(trainee, Place())


def test_what_is_measured_grows_with_the_batch_as_it_is_kept(tiny_run: Any) -> None:
    """y = x W^T keeps x; so a layer of known size keeps what can be counted."""
    trainee = trainee_of(tiny_run)
    x = torch.ones(64, 32, requires_grad=True)

    def squared(batch: Any) -> Any:
        return (x[: 8 * len(batch.source)].clone() ** 2).sum()

    trainee.loss_of = squared  # type: ignore[method-assign, assignment]
    (share, *_) = shares(tiny_run.data)
    batch = share.batches[0][1]
    kept = [rehearsal._saved_bytes(trainee, batch.rows(0, count)) for count in (1, 2)]
    assert kept == [8 * 32 * 4, 16 * 32 * 4]


def window_of(lengths: np.ndarray, groups: list[list[int]]) -> Window:
    updates = [[np.array(group)] for group in groups]
    return Window(np.arange(lengths.shape[1]), lengths.astype(np.int32), updates)


def test_the_largest_batch_is_the_largest_of_all(tiny_config: Callable[..., config.Model]) -> None:
    model = tiny_config()
    random = np.random.default_rng(4)

    for _ in range(20):
        lengths = random.integers(1, 40, (2, 60))
        order = np.lexsort(lengths)
        groups = [part.tolist() for part in np.array_split(order, 7)]
        window = window_of(lengths, groups)
        for max_tokens in (40, 100, 1000):
            sizes = [
                kept(model, len(batch), *window.lengths[:, batch].max(axis=1).tolist())
                for group in window.updates
                for batch in split(window.lengths, group, max_tokens)
            ]
            found = largest(window, model, max_tokens)
            assert kept(model, len(found), *window.lengths[:, found].max(axis=1).tolist()) == max(
                sizes
            )


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says it in /proc")
def test_free_memory_is_no_more_than_there_is() -> None:
    free = memory.available()
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = [line for line in lines if line.startswith(("MemTotal", "SwapTotal"))]
    assert free is not None
    assert 0 < free <= sum(int(line.split()[1]) * 1024 for line in total)
