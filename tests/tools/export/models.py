"""Small models that have begun to learn copying, and their translations by nmtdeep."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.model import Model
from nmtdeep.data.batch import Batch, pad_batch
from nmtdeep.decoding.search import Hypothesis
from nmtdeep.decoding.searcher import Searcher
from nmtdeep.decoding.translator import Translator
from nmtdeep.model.build import build, initialize
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabulary
from nmtdeep.training.loss import batch_loss

TYPES = 30
TOKENS = [*SPECIALS, *(f"type{number}" for number in range(len(SPECIALS), TYPES))]
SETTINGS = DecodingOptions(beam=4, lenpen=0.0, max_length_factor=0, max_length_constant=80)
STACKS = {
    "encoder": {"depth": 2, "heads": 4, "feed_forward": 48},
    "decoder": {"depth": 1, "heads": 2, "feed_forward": 40},
}


def config(residual: object, decoder: object = None, **other: Any) -> Model:
    """A recipe's section `model`, small."""
    kinds = {"encoder": residual, "decoder": decoder or residual}
    stacks = {name: {**STACKS[name], "residual": kind} for name, kind in kinds.items()}
    return Model.model_validate({"width": 32, **stacks, "dropout": {"embedding": 0}, **other})


def sentences(lengths: list[int], seed: int = 5) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(len(SPECIALS), TYPES, length).tolist(), EOS] for length in lengths]


SOURCES = sentences([1, 2, 5, 7, 9, 12] * 2 + [40, 70])


def update(model: Transformer, optimizer: Any, sources: list[Any], targets: list[Any]) -> float:
    """One update; the loss per token before it."""
    inputs = pad_batch([[EOS, *ids[:-1]] for ids in targets])
    batch = Batch.of(pad_batch(sources), inputs, pad_batch(targets), np.arange(len(targets)))
    optimizer.zero_grad()
    loss = batch_loss(model, batch, smoothing=0.0, dtype=torch.float32).smoothed
    loss.backward()
    optimizer.step()
    return float(loss.detach()) / batch.target_tokens


def trained(section: Model, updates: int = 70) -> Transformer:
    """Biases and norms start at values that would hide a mistake, so all weights are moved."""
    model = build(section, source_types=TYPES, target_types=TYPES)
    initialize(model, section, seed=1)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
    model.eval()  # no dropout, which would be noise here
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for seed in range(updates):
        copied = sentences([2, 4, 6, 8, 11] * 3, seed)
        update(model, optimizer, copied, copied)
    with torch.no_grad():
        # nmtdeep excludes <pad> and <unk> after the softmax, others before: no probability here.
        hidden = model(pad_batch(copied), pad_batch([[EOS, *ids[:-1]] for ids in copied]))
        mean = hidden.mean(dim=(0, 1))
        model.output.weight[[PAD, UNK]] -= 30 * mean / mean.dot(mean)
    return model


def best(model: Transformer) -> list[Hypothesis]:
    """The best translation of each of SOURCES."""
    vocabulary = Vocabulary(tuple(TOKENS), (0,) * TYPES)
    side = SimpleNamespace(vocabulary=vocabulary)
    pipeline: Any = SimpleNamespace(source=side, target=side)
    translator = Translator(Searcher([model], SETTINGS), pipeline)
    return [hypotheses[0] for hypotheses in translator.search(SOURCES)]
