"""What a turn works on, and the operations and bytes that it cannot do without."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from nmtdeep.data import batching
from nmtdeep.data.batching import Batch, Indices
from nmtdeep.data.corpus import ParallelCorpus
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.merged_attention import MergedAttention
from nmtdeep.model.transformer import Transformer

FORWARD, TRAINING = 2, 6  # operations for each weight and row; backwards to input and to weight
# Bytes of an update for each parameter, in fp32: read forwards and backwards (2), gradient written
# and read (2), both moments of Adam read and written (4), written (1).
STATE_BYTES = 9 * 4


@dataclass(frozen=True)
class Work:
    """What a turn trains on; every turn has the same.

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
            yield batching.collate(self.corpus, indices).to(device)

    @classmethod
    def choose(cls, corpus: ParallelCorpus, *, tokens: int, updates: int, seed: int = 1) -> "Work":
        """The first updates of an epoch, one batch each; the order is random."""
        lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
        plan = batching.updates(
            lengths, group_tokens=tokens, tokens_per_update=tokens, seed=seed, epoch=0
        )
        chosen = [group for groups in plan for group in groups][:updates]
        padded = sum(len(group) * int(lengths[:, group].max(axis=1).sum()) for group in chosen)
        return cls(corpus, chosen, lengths[:, np.concatenate(chosen)].astype(np.int64), padded)


@dataclass(frozen=True)
class Product:
    """All products with weights `(outputs, inputs)`, over `rows` real positions in a turn."""

    inputs: int
    outputs: int
    rows: int

    @property
    def weights(self) -> int:
        return self.inputs * self.outputs


def products(model: Transformer, *, source: int, target: int, predicted: int) -> list[Product]:
    """The products of a pass over so many positions, equal shapes taken together.

    Args:
        source: positions that the encoder sees, and whose keys and values the decoder makes.
        target: positions that the decoder sees.
        predicted: positions whose logits are computed.
    """
    rows: dict[tuple[int, int], int] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            reads_source = name.startswith("encoder") or name.endswith("key_value")
            shape = (module.in_features, module.out_features)
            rows[shape] = rows.get(shape, 0) + (source if reads_source else target)
        elif isinstance(module, MergedAttention):  # the values of the target, see `forward` there
            shape = (module.cross.output.in_features,) * 2
            rows[shape] = rows.get(shape, 0) + target
    types, width = model.output.weight.shape
    rows[width, types] = rows.get((width, types), 0) + predicted
    return [Product(inputs, outputs, count) for (inputs, outputs), count in rows.items()]


@dataclass(frozen=True)
class Cost:
    """Operations of matrix products, and bytes that cross the memory bus."""

    operations: float
    bytes: float


def training_cost(model: Transformer, work: Work) -> Cost:
    """Of a turn's updates, on real tokens: padding is not needed.

    Operations: products with weights, and of queries with keys and weights with values. Bytes: each
    parameter, its gradient and its two moments in each update, as if activations stayed in caches.
    """
    linear = products(
        model,
        source=work.source_tokens,
        target=work.target_tokens,
        predicted=work.target_tokens,
    )
    operations = sum(TRAINING * one.weights * one.rows for one in linear)
    operations += 3 * attention_operations(model, *work.pairs)
    parameters = sum(value.numel() for value in model.parameters())
    return Cost(operations, STATE_BYTES * parameters * len(work.plan))


def attention_operations(model: Transformer, source: np.ndarray, target: np.ndarray) -> float:
    """Forwards, for sentences of these lengths; a causal product needs one half."""
    counts = {"encoder": 0.0, "decoder": 0.0, "cross": 0.0}
    for name, module in model.named_modules():
        if isinstance(module, SelfAttention):
            counts[name.partition(".")[0]] += module.output.out_features
        elif isinstance(module, CrossAttention):
            counts["cross"] += model.output.weight.shape[1]
    s, t = source.astype(np.float64), target.astype(np.float64)
    pairs = {"encoder": s @ s, "decoder": t @ (t + 1) / 2, "cross": s @ t}
    return float(sum(4 * counts[kind] * pairs[kind] for kind in counts))


def decoding_cost(
    model: Transformer,
    source: Sequence[int],
    target: Sequence[int],
    *,
    beam: int,
    batch: int,
    item: int = 4,
) -> Cost:
    """Of translating sentences of `source` lengths into `target` lengths, stepwise.

    Operations: encoder, keys and values of the memory once a sentence, and every step of every
    hypothesis. Bytes: the decoder's weights in each step of each batch, and the keys and values
    that a step reads, the memory's once for all hypotheses of a sentence.

    Args:
        batch: sentences that go through together, the longest output deciding the steps.
        item: bytes of a number.
    """
    s, t = (np.asarray(side, dtype=np.float64) for side in (source, target))
    linear = products(model, source=int(s.sum()), target=int(t.sum()) * beam, predicted=0)
    operations = float(sum(FORWARD * one.weights * one.rows for one in linear))
    operations += FORWARD * model.output.weight.numel() * float(t.sum()) * beam
    operations += attention_operations(model, s, np.zeros_like(t))
    depth, width = len(model.decoder.layers), model.output.weight.shape[1]
    own = any(isinstance(module, SelfAttention) for module in model.decoder.modules())
    cached = float(t @ (t + 1)) / 2 * own
    operations += 4 * depth * width * beam * (cached + float(s @ t))
    ordered = np.sort(t)[::-1]
    steps = float(sum(ordered[first] for first in range(0, len(t), batch)))
    stepped = sum(
        module.weight.numel()
        for name, module in model.decoder.named_modules()
        if isinstance(module, nn.Linear) and not name.endswith("key_value")
    )
    read = steps * (stepped + model.output.weight.numel())
    read += 2 * depth * width * (beam * cached + float(s @ t))
    return Cost(operations, read * item)
