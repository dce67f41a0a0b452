"""A model, real sentences, backward passes of the loss, and what passes through its modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from nmtdeep.analysis.measurement import check_same_text, typed
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.model import SIDES
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batch import Batch, read_batch
from nmtdeep.data.batching import cut_by_tokens
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.devices import kept_settings
from nmtdeep.errors import UserError
from nmtdeep.model.initialization import Side
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.memory import check_model_fits
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.step import seed_for
from nmtdeep.training.trainer import initialized_model

BATCH_TOKENS = 1024


@dataclass(frozen=True)
class Passage:
    """Inputs and output of a module in a forward pass; tensors `(sentences, positions, width)`."""

    inputs: tuple[Any, ...]
    output: Tensor


Passages = dict[nn.Module, Passage]


@dataclass(frozen=True)
class Probe:
    """A model after so many updates (None: an average), and the sentences to measure it on."""

    model: Transformer
    batches: list[Batch]
    recipe: Recipe
    update: int | None = 0

    def stacks(self) -> tuple[tuple[Side, Stack], ...]:
        return ("encoder", self.model.encoder), ("decoder", self.model.decoder)

    def conditions(self) -> dict[str, Any]:
        target_tokens = sum(batch.target_tokens for batch in self.batches)
        model, average = self.recipe.model, {"kind": "average of checkpoints"}
        own = {f"{side} initializer": getattr(model, side).initializer for side in SIDES}
        return {
            "initializer": typed(model.initializer),
            **{name: typed(chosen) for name, chosen in own.items() if chosen},
            **(average if self.update is None else {"update": self.update}),
            "training sentences": sum(len(batch.source) for batch in self.batches),
            "source tokens": sum(batch.real_tokens for batch in self.batches) - target_tokens,
            "target tokens": target_tokens,
            "seed": self.recipe.training.seed,
        }

    def passes(self, watch: Iterable[nn.Module]) -> Iterator[tuple[Passages, dict[Side, Tensor]]]:
        """Backward passes of the recipe's loss per target token, with the first update's dropout.

        The parameters' gradients add up over the batches; earlier gradients are deleted.

        Yields:
            For each batch the passages of the watched modules, whose tensors have gradients, and by
            side a mask `(sentences, positions)` that is True at real tokens.
        """
        watch, pad, settings = list(watch), self.model.pad, self.recipe.training
        tokens = sum(batch.target_tokens for batch in self.batches)
        smoothing, dtype = settings.label_smoothing, self.model.output.weight.dtype
        self.model.train()
        self.model.zero_grad()
        for layer in (*self.model.encoder, *self.model.decoder):
            layer.drop = 0.0  # each layer is measured
        for number, batch in enumerate(self.batches):
            with kept_settings(), watched(watch) as passages:
                torch.manual_seed(seed_for(settings.seed, 1, number))
                loss = batch_loss(self.model, batch, smoothing=smoothing, dtype=dtype)
            (loss.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            yield passages, {"encoder": batch.source != pad, "decoder": batch.target_input != pad}


class ProbeText(NamedTuple):
    """About `tokens` target tokens of the training sentences of `data`, and where to compute.

    Ids are taken as they are, whatever section `text` of a recipe says.
    """

    data: DataDirectory
    tokens: int
    device: torch.device


@kept_settings()
def prepare(subject: Recipe | Loaded, sample: ProbeText) -> Probe:
    """A trained model, or a recipe's initial one, and training sentences to measure it on.

    The sentences depend on the recipe's seed only.
    """
    data, tokens, device = sample
    recipe = subject.recipe if isinstance(subject, Loaded) else subject
    batches = sentences(data.corpus(data.training[0]), tokens=tokens, seed=recipe.training.seed)
    update: int | None = 0
    if isinstance(subject, Loaded):
        check_same_text(subject, data)
        model, update = subject.model.to(device), subject.state.get("update")
    else:
        source, target = data.pipeline.source.vocabulary, data.pipeline.target.vocabulary
        if recipe.model.embeddings.sharing == "all" and len(source) != len(target):
            what = f"{data.path} has two vocabularies, but model.embeddings.sharing is all"
            hint = "pass model.embeddings.sharing=decoder, or data with a shared vocabulary"
            raise UserError(what, hint=hint)
        check_model_fits(recipe.model, **data.pipeline.sizes)
        # There is one process.
        alone = recipe.with_training(precision="fp32")
        model = initialized_model(Setup(alone, data, Ranks(device=device))).to(device)
    model.keep("all")  # recomputed activations would not be those that have the gradients
    return Probe(model, [batch.to(device) for batch in batches], recipe, update)


def sentences(corpus: ParallelCorpus, *, tokens: int, seed: int) -> list[Batch]:
    """Random sentence pairs with `tokens` target tokens together, in batches of similar length."""
    if not len(corpus):
        raise UserError("the data directory has no training sentences", hint="preprocess again")
    order = np.random.default_rng(seed).permutation(len(corpus))
    reached = np.cumsum(corpus.target.lengths[order])
    chosen = order[: int(np.searchsorted(reached, tokens)) + 1]
    longer = np.maximum(corpus.source.lengths, corpus.target.lengths)
    chosen = chosen[np.argsort(longer[chosen], kind="stable")]
    return [read_batch(corpus, part) for part in cut_by_tokens(longer, chosen, BATCH_TOKENS)]


@contextmanager
def watched(modules: Iterable[nn.Module]) -> Iterator[Passages]:
    """Record input and output of `modules` within the context; the tensors keep their gradients."""
    passages: Passages = {}

    def record(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        for tensor in (inputs[0], output):
            if tensor.requires_grad:
                tensor.retain_grad()
        passages[module] = Passage(inputs, output)

    with ExitStack() as hooks:
        for module in modules:
            hooks.enter_context(module.register_forward_hook(record))
        yield passages


def squared_gradient(tensor: Tensor, real: Tensor) -> float:
    """Squared 2-norm of the gradient at `real` positions; 0 if the loss does not depend on it."""
    return 0.0 if tensor.grad is None else float(tensor.grad[real].double().square().sum())
