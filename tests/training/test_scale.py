"""The same updates however they are spread: 1, 2 or 3 ranks, resumed."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from torch.testing import assert_close

from nmtdeep import checkpoint
from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.data.batching import assign_to_ranks
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.ranks import ALONE
from nmtdeep.training.state import optimizer_tensors, restore_optimizer
from nmtdeep.training.step import Step
from training.in_ranks import in_ranks

# Batches of each update; the third has fewer than there are ranks.
BATCHES = (4, 5, 1, 3, 2)
# Epsilon is large, so that a gradient that is zero by nature (of key biases) stays small as a step.
SETTINGS = Training.model_validate(
    {"clip_norm": 0.5, "optimizer": {"type": "adam", "epsilon": 1e-3}, "label_smoothing": 0.1}
)


def shares(plan, ranks):
    """This rank's share of each update."""
    own_shares = []
    for batches in plan:
        owners = assign_to_ranks([batch.padded_tokens for batch in batches], ranks.size)
        own = [(n, batch) for n, batch in enumerate(batches) if owners[n] == ranks.rank]
        own_shares.append(replace(RankBatches.single(batches), batches=own))
    return own_shares


def work(ranks, model, plan, jobs):
    """Do every job with the other ranks."""
    return [updated(ranks, deepcopy(model), shares(plan, ranks), **job) for job in jobs]


def updated(ranks, model, own, *, first=0, last=None, start=None, **changes):
    """Weights and moments after updates `first` to `last` (not included) from `start`."""
    if start:
        checkpoint.load_weights(model, start[0], "the test")
    step = Step(model, SETTINGS.model_copy(update=changes), ranks=ranks)
    if start:
        restore_optimizer(model, step.optimizer, deepcopy(start[1]))
    for number, share in enumerate(own[first:last], start=first + 1):
        step.update(share, number, 0.01)
    parts = checkpoint.weights(model), optimizer_tensors(model, step.optimizer)
    return [{name: each.detach().clone() for name, each in part.items()} for part in parts]


@pytest.fixture(scope="module")
def plan(make_batch):
    random = np.random.default_rng(3)

    def sentences(count):
        return [
            [*random.integers(3, 20, length).tolist(), EOS]
            for length in random.integers(1, 9, count)
        ]

    return [
        [make_batch(sentences(size), sentences(size)) for size in random.integers(1, 4, count)]
        for count in BATCHES
    ]


@pytest.fixture(scope="module")
def model(tiny_model):
    """Tied embeddings, dropout, parameters inside and outside the layers, a vector of one."""
    return tiny_model(dropout=0.2, combinations=("dlcl", "dlcl"), encoder="rezero")


def equal(state, expected):
    for tensor, reference in zip(state, expected, strict=True):
        assert_close(tensor, reference, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_updates_do_not_depend_on_ranks(model, plan):
    (whole,) = work(ALONE, model, plan, [{}])
    jobs = [{}, {"checkpoint_activations": "layers"}, {"last": 2}]
    *complete, half = in_ranks(2, work, model, plan, jobs)
    resumed = [{"first": 2, "start": half}]
    for ranks in (work(ALONE, model, plan, resumed), in_ranks(3, work, model, plan, resumed)):
        complete += ranks
    for state in complete:
        equal(state, whole)
