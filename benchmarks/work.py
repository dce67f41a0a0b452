"""The batches of a training benchmark."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from nmtdeep.config.training import Batches
from nmtdeep.data import batching
from nmtdeep.data.batch import Batch, read_batch
from nmtdeep.data.batching import Indices
from nmtdeep.data.corpus import ParallelCorpus


@dataclass(frozen=True)
class Work:
    """The batches of a turn, the same in every turn.

    Attributes:
        pairs: `(2, sentences)` source and target lengths, end of sentence included.
        padded_tokens: cells of both sides, padding included.
    """

    corpus: ParallelCorpus
    plan: list[Indices]
    pairs: np.ndarray
    padded_tokens: int

    @property
    def source_tokens(self) -> int:
        return int(self.pairs[0].sum())

    @property
    def target_tokens(self) -> int:
        return int(self.pairs[1].sum())

    @property
    def padding(self) -> float:
        """Share of cells that hold nothing."""
        return 1 - (self.source_tokens + self.target_tokens) / self.padded_tokens

    def batches(self, device: torch.device) -> Iterator[Batch]:
        for indices in self.plan:
            yield read_batch(self.corpus, indices).to(device)

    def train(self, step: Callable[[Batch], object], device: torch.device) -> None:
        """One turn."""
        for batch in self.batches(device):
            step(batch)

    @classmethod
    def choose(cls, corpus: ParallelCorpus, *, tokens: int, updates: int, seed: int = 1) -> "Work":
        """The first updates of an epoch, one batch each; the order is random."""
        lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
        sizes = Batches(group_tokens=tokens, tokens_per_update=tokens)
        plan = batching.updates(lengths, sizes, seed=seed, epoch=0)
        chosen = [group for groups in plan for group in groups][:updates]
        padded = sum(len(group) * int(lengths[:, group].max(axis=1).sum()) for group in chosen)
        return cls(corpus, chosen, lengths[:, np.concatenate(chosen)].astype(np.int64), padded)
