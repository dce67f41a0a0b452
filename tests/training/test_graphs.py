"""Recorded work computes what the same work does at once, and filled batches what exact ones do."""

from contextlib import closing, nullcontext

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches, read_batch
from nmtdeep.data.capacity import Capacity
from nmtdeep.training import feed
from nmtdeep.training.feed import upcoming
from nmtdeep.training.graphs import Graphs, eager_because
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress
from nmtdeep.training.step import Step

SIZES = [Capacity((400, 400), 40, (60, 60)), Capacity((600, 600), 60, (60, 60))]


def filled_shares(tiny_run, count):
    """Updates of two batches of changing sizes, most of which are filled up."""
    corpus, shares = tiny_run.data.corpus("train"), []
    draw = np.random.default_rng(5)
    for _ in range(count):
        pairs = [draw.choice(len(corpus), size, replace=False) for size in draw.integers(6, 24, 2)]
        lengths = [
            np.stack([side.read(each)[1] for side in (corpus.source, corpus.target)])
            for each in pairs
        ]
        fits = [next((s for s in SIZES if s.fillers(each) is not None), None) for each in lengths]
        batches = [
            read_batch(corpus, np.sort(each), packed=True, capacity=size)
            for each, size in zip(pairs, fits, strict=True)
        ]
        shares.append(RankBatches.single(batches))
    return shares


class Reads(TorchDispatchMode):
    """The memory that operations read and have not made themselves."""

    def __init__(self):
        super().__init__()
        self.made, self.read = {}, {}

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        result = operation(*given, **named or {})
        constant = operation is torch.ops.aten.lift_fresh.default
        found = (self.made if constant else self.read, (given, named)), (self.made, result)
        for known, values in found:
            for each in tree_leaves(values):
                if isinstance(each, torch.Tensor):
                    memory = StorageWeakRef(each.untyped_storage())
                    if not {memory.cdata} & (self.made.keys() | self.read.keys()):
                        known[memory.cdata] = memory
        return result


class Poisoned(Graphs):
    """Everything that recorded work keeps is spoiled between two runs, and what it reads is there.

    A graph goes on reading the addresses of its recording, whatever has become of them.
    """

    def run(self, key, work, *inputs):
        for tensor in self._inputs.get(key, ()):
            tensor.fill_(float("nan") if tensor.is_floating_point() else 10**6)
        return super().run(key, work, *inputs)

    def _recorded(self, work):
        reads = Reads()

        def replay():
            assert not any(memory.expired() for memory in reads.read.values())
            with nullcontext() if reads.read else reads:
                work()

        return replay


def replays(shares, optimizer):
    """The first batch of each size is no replay; nor is the first step after one."""
    met, count, steps = set(), 0, 0
    for share in shares:
        for _, batch in share.batches:
            count += batch.capacity in met
            met |= {batch.capacity} - {None}
        steps += count > 0
    return count + (steps - 1 if optimizer == "adam" else 0)  # Muon's step is not recorded


@pytest.mark.parametrize("optimizer", ["adam", pytest.param("muon", marks=pytest.mark.slow)])
def test_recorded_updates_equal_eager_ones(tiny_model, tiny_run, optimizer):
    """50 updates; after the tenth, a validation has a sentence longer than any before."""
    shares, found = filled_shares(tiny_run, 50), []
    types = len(tiny_run.pipeline.source.vocabulary)
    assert {batch.capacity for share in shares for _, batch in share.batches} >= {*SIZES, None}
    for records in (True, False):
        model = tiny_model(types=types, dropout=0.1)
        step = Step(model, Training.model_validate({"clip_norm": 1.0, "optimizer": optimizer}))
        step.passes.graphs, step.passes._records = Poisoned(step.device), records
        results = []
        for number, share in enumerate(shares, start=1):
            results.append(step.update(share, number, 1e-2))
            if number == 10:
                model.eval().encode(torch.full((1, 300), 5))
            if records:
                step.passes._sums.fill_(float("nan"))
                step._norms.fill_(float("nan"))
        found.append((results, dict(model.named_parameters())))
        assert step.passes.graphs.replays == (replays(shares, optimizer) if records else 0)
    (recorded, weights), (eager, expected) = found
    assert recorded == eager
    assert all(torch.equal(weights[name], value) for name, value in expected.items())


def test_the_feed_fills_batches_by_the_first_updates_of_the_training(tiny_run, monkeypatch):
    monkeypatch.setattr(feed, "eager_because", lambda *_: "")
    monkeypatch.setattr(Recipe, "uses_packing", lambda *_: True)
    batches = {"tokens_per_update": 400, "group_tokens": 200}
    described = {**tiny_run.recipe.model_dump(), "training": {"batches": batches}}
    recipe = Recipe.model_validate(described)

    def capacities_of(progress, count):
        with closing(upcoming(Setup(recipe, tiny_run.data), progress)) as coming:
            shares = [next(coming) for _ in range(count)]
        for each in shares:
            ((_, batch),) = each.batches.batches
            assert each.batches.padded_tokens == batch.source.numel() + batch.target_output.numel()
            assert each.batches.target_tokens == batch.target_tokens
        return [each.batches.batches[0][1].capacity for each in shares], shares

    whole, shares = capacities_of(Progress(), 12)
    assert len({*whole} - {None}) in range(1, 9)
    resumed, _ = capacities_of(Progress(update=5, position=shares[4].position), 7)
    assert resumed == whole[5:]


@pytest.mark.parametrize(
    ("device", "section", "value", "word"),
    [
        ("cuda", "training", {}, ""),
        ("cpu", "training", {}, "GPU"),
        ("cuda", "model", {"dropout": {"layer": 0.1}}, "LayerDrop"),
        ("cuda", "text", {"bpe": {"type": "joint", "merges": 60, "dropout": 0.1}}, "drawn"),
        ("cuda", "training", {"checkpoint_activations": "layers"}, "recompute"),
        ("cuda", "model", {"positions": "relative"}, "padded"),
        ("cuda", "training", {"regularizer": "r_drop"}, "padded"),
    ],
)
def test_what_runs_eagerly_says_why(tiny_run, device, section, value, word):
    described = tiny_run.recipe.model_dump()
    described[section] |= value
    ranks = Ranks(device=torch.device(device))
    reason = eager_because(Setup(Recipe.model_validate(described), tiny_run.data, ranks))
    assert word in reason and bool(word) == bool(reason)
