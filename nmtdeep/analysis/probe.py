"""A model at its start, real sentences, one backward pass, and what was seen on the way."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nmtdeep import __version__
from nmtdeep.analysis.subject import check_same_text
from nmtdeep.checkpoint import Loaded
from nmtdeep.config import Recipe
from nmtdeep.config import training as config
from nmtdeep.data.batching import Batch, collate, cut
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.errors import DivergenceError, UserError
from nmtdeep.model.initialization import Side
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.training.distributed import ALONE
from nmtdeep.training.feed import upcoming
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.size import check_size
from nmtdeep.training.state import Progress
from nmtdeep.training.trainee import fresh_model
from nmtdeep.training.update import batch_loss, seed_for, train_update

BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Conditions:
    """What a measurement depends on: its signature.

    Attributes:
        initializer: its type and settings.
        updates: of training, before the measurement; None for an average of checkpoints.
        text: fingerprint of the text pipeline that made the ids.
    """

    recipe: str
    initializer: str
    updates: int | None
    sentences: int
    source_tokens: int
    target_tokens: int
    seed: int
    text: str
    nmtdeep: str
    torch: str

    @property
    def how(self) -> str:
        """All that is not of the model."""
        return (
            f"{self.sentences:,} training sentences, {self.source_tokens:,} source and "
            f"{self.target_tokens:,} target tokens, seed {self.seed}, fp32, text {self.text[:16]}, "
            f"nmtdeep {self.nmtdeep}, torch {self.torch}"
        )

    def __str__(self) -> str:
        trained = f"after {self.updates:,} updates" if self.updates else "before the first update"
        if self.updates is None:
            trained = "mean of several checkpoints"
        return f"{self.recipe}, {self.initializer}, {trained}: {self.how}"


class Passage(NamedTuple):
    """What a module read and gave in a forward pass, each `(sentences, positions, width)`."""

    read: Tensor
    gave: Tensor


class Pass(NamedTuple):
    """One batch forward and backward.

    Attributes:
        seen: passages of the watched modules, whose tensors have their gradients.
        real: by side, a mask `(sentences, positions)` that is True at real tokens.
    """

    seen: dict[nn.Module, Passage]
    real: dict[Side, Tensor]


@dataclass(frozen=True)
class Probe:
    """A model and the sentences to measure it on.

    Attributes:
        batches: numbered from 0, which decides their dropout.
        settings: the recipe's section `training`, for loss and seed.
    """

    model: Transformer
    batches: list[Batch]
    settings: config.Training

    def stacks(self) -> Iterator[tuple[Side, Stack]]:
        """Encoder and decoder."""
        yield "encoder", self.model.encoder
        yield "decoder", self.model.decoder

    def passes(self, watch: Iterable[nn.Module]) -> Iterator[Pass]:
        """Backward passes of the recipe's loss per target token, with the first update's dropout.

        The parameters' gradients add up over the batches; those that were there are deleted.
        """
        watch, pad = list(watch), self.model.pad
        tokens = sum(batch.target_tokens for batch in self.batches)
        smoothing, dtype = self.settings.label_smoothing, self.model.output.weight.dtype
        self.model.train()
        self.model.zero_grad()
        for number, batch in enumerate(self.batches):
            torch.manual_seed(seed_for(self.settings.seed, 1, number))
            with watched(watch) as seen:
                loss = batch_loss(self.model, batch, smoothing=smoothing, dtype=dtype)
            (loss.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            yield Pass(seen, {"encoder": batch.source != pad, "decoder": batch.target_input != pad})


def prepare(
    recipe: Recipe, data: DataDirectory, *, tokens: int, device: torch.device, updates: int = 0
) -> Probe:
    """The model of `recipe` at its start, or after `updates` of training, and sentences for it.

    Args:
        recipe: its section `text` is not looked at: the ids of `data` are taken as they are.
        tokens: target tokens to measure on, about.
        updates: optimizer steps to train before.

    Raises:
        UserError: if recipe and data do not fit together.
    """
    pipeline = data.pipeline
    types = len(pipeline.source.vocabulary), len(pipeline.target.vocabulary)
    if recipe.model.embeddings.sharing == "all" and types[0] != types[1]:
        raise UserError(
            f"{data.path} has two vocabularies, but model.embeddings.sharing is all: give "
            "model.embeddings.sharing=decoder, or data with a shared vocabulary"
        )
    check_size(recipe.model, types[1], device, kept=("weights", "gradients"))
    batches = sentences(data.corpus("train"), tokens=tokens, seed=recipe.training.seed)
    model = fresh_model(recipe, data).to(device)
    _train(model, recipe, data, updates)
    model.keep("all")  # what is watched must be what the gradients come from
    return Probe(model, [batch.to(device) for batch in batches], recipe.training)


def trained(loaded: Loaded, data: DataDirectory, *, tokens: int, device: torch.device) -> Probe:
    """A model that was trained already, and the sentences that `prepare` takes for its recipe.

    Raises:
        UserError: if it was trained on another vocabulary.
    """
    check_same_text(loaded, data)
    seed = loaded.recipe.training.seed
    batches = sentences(data.corpus("train"), tokens=tokens, seed=seed)
    model = loaded.model.to(device)
    model.keep("all")
    return Probe(model, [batch.to(device) for batch in batches], loaded.recipe.training)


def conditions(
    name: str, recipe: Recipe, data: DataDirectory, probe: Probe, updates: int | None
) -> Conditions:
    """The signature of what is measured with `probe`."""
    chosen = recipe.model.initializer.model_dump()
    words = [chosen.pop("type"), *(f"{key}={value}" for key, value in chosen.items())]
    target_tokens = sum(batch.target_tokens for batch in probe.batches)
    return Conditions(
        recipe=name,
        initializer=" ".join(words),
        updates=updates,
        sentences=sum(len(batch.source) for batch in probe.batches),
        source_tokens=sum(batch.real_tokens for batch in probe.batches) - target_tokens,
        target_tokens=target_tokens,
        seed=recipe.training.seed,
        text=data.fingerprint,
        nmtdeep=__version__,
        torch=torch.__version__,
    )


def sentences(corpus: ParallelCorpus, *, tokens: int, seed: int) -> list[Batch]:
    """Sentence pairs drawn at random: as many as it takes to have `tokens` target tokens.

    They come in batches of similar length, so that little of the work is padding.

    Raises:
        UserError: if the corpus is empty.
    """
    if not len(corpus):
        raise UserError("the data directory has no training sentences: preprocess again")
    order = np.random.default_rng(seed).permutation(len(corpus))
    reached = np.cumsum(corpus.target.lengths[order])
    chosen = order[: int(np.searchsorted(reached, tokens)) + 1]
    lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
    longer = lengths.max(axis=0)
    chosen = chosen[np.argsort(longer[chosen], kind="stable")]
    return [collate(corpus, part) for part in cut(longer, chosen, BATCH_TOKENS)]


def _train(model: Transformer, recipe: Recipe, data: DataDirectory, updates: int) -> None:
    """The first `updates` of the recipe's training, in fp32."""
    device, settings = model.output.weight.device, recipe.training
    optimizer = make_optimizer(model, settings.optimizer, dtype=torch.float32)
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    with tempfile.TemporaryDirectory() as scratch:
        feed = upcoming(recipe, data, Path(scratch), Progress(), device, ALONE)
        for update, coming in zip(range(1, updates + 1), feed, strict=False):
            lr = learning_rate(
                settings.schedule,
                update,
                width=recipe.model.width,
                max_updates=settings.max_updates,
            )
            result = train_update(
                model,
                optimizer,
                scaler,
                coming.share,
                update=update,
                lr=lr,
                settings=settings,
                dtype=torch.float32,
            )
            if result.skipped:
                raise DivergenceError(
                    f"update {update} has no finite gradient (loss "
                    f"{result.loss / result.target_tokens:.3f} per token): lower "
                    "training.schedule.lr, or look after fewer updates"
                )


@contextmanager
def watched(modules: Iterable[nn.Module]) -> Iterator[dict[nn.Module, Passage]]:
    """While this lasts, note what `modules` read and give; the tensors keep their gradients."""
    seen: dict[nn.Module, Passage] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for tensor in (inputs[0], output):
            if tensor.requires_grad:
                tensor.retain_grad()
        seen[module] = Passage(inputs[0], output)

    handles = [module.register_forward_hook(note) for module in modules]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def squared_gradient(tensor: Tensor, real: Tensor) -> float:
    """Squared 2-norm of the loss's gradient at `tensor`'s `real` positions.

    A tensor that the loss does not depend on has the gradient 0.
    """
    return 0.0 if tensor.grad is None else float(tensor.grad[real].double().square().sum())
