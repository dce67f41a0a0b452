"""What a turn of the training benchmark works on, and the time its bare matrix products take."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from nmtdeep.data import batching
from nmtdeep.data.batching import Batch, Indices
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.model.transformer import Transformer

ROWS = 2048  # of one matrix product of the floor


@dataclass(frozen=True)
class Work:
    """What a turn trains on; every turn has the same."""

    corpus: ParallelCorpus
    plan: list[Indices]
    source: int
    target: int
    target_tokens: int
    real_tokens: int

    def batches(self) -> Iterator[Batch]:
        return (batching.collate(self.corpus, indices) for indices in self.plan)

    @classmethod
    def choose(cls, corpus: ParallelCorpus, *, tokens: int, updates: int) -> "Work":
        """The first updates of an epoch, one batch each; the order is random."""
        lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
        plan = batching.updates(
            lengths, group_tokens=tokens, tokens_per_update=tokens, seed=1, epoch=0
        )
        chosen = [group for groups in plan for group in groups][:updates]
        batches = [batching.collate(corpus, indices) for indices in chosen]
        return cls(
            corpus,
            chosen,
            sum(batch.source.numel() for batch in batches),
            sum(batch.target_output.numel() for batch in batches),
            sum(batch.target_tokens for batch in batches),
            sum(batch.real_tokens for batch in batches),
        )


@dataclass(frozen=True)
class Product:
    """A weight `(outputs, inputs)`, of how many matrices, over how many rows in a turn."""

    inputs: int
    outputs: int
    rows: int

    @property
    def flops(self) -> int:
        """Forwards, and backwards to the input and to the weight."""
        return 6 * self.inputs * self.outputs * self.rows


def products(model: Transformer, work: Work) -> list[Product]:
    """Every matrix product of a turn with a weight, equal shapes taken together."""
    rows: dict[tuple[int, int], int] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            reads_source = name.startswith("encoder") or name.endswith("key_value")
            shape = (module.in_features, module.out_features)
            rows[shape] = rows.get(shape, 0) + (work.source if reads_source else work.target)
    types, width = model.output.weight.shape
    rows[width, types] = rows.get((width, types), 0) + work.target_tokens
    return [Product(inputs, outputs, count) for (inputs, outputs), count in rows.items()]


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of all threads of this process."""

    wall: float
    cpu: float


def clocks() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


def since(started: Spent, share: float = 1.0) -> Spent:
    now = clocks()
    return Spent((now.wall - started.wall) * share, (now.cpu - started.cpu) * share)


def floor(model: Transformer, work: Work, dtype: torch.dtype) -> Spent:
    """Time of all products of a turn, from a few of each shape, into buffers that exist already."""
    spent, trials = [], 3
    for product in products(model, work):
        x, y = (torch.randn(ROWS, size).to(dtype) for size in (product.inputs, product.outputs))
        weight = torch.randn(product.outputs, product.inputs).to(dtype)
        out_x, out_y, out_weight = (torch.empty_like(value) for value in (x, y, weight))
        started = clocks()
        for trial in range(1 + trials):
            if trial == 1:  # the first one is there to warm up
                started = clocks()
            torch.mm(x, weight.t(), out=out_y)
            torch.mm(y, weight, out=out_x)
            torch.mm(y.t(), x, out=out_weight)
        spent.append(since(started, product.rows / ROWS / trials))
    return Spent(sum(part.wall for part in spent), sum(part.cpu for part in spent))
