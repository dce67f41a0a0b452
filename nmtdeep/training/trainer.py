"""The model in training, with its optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nmtdeep import checkpoint, memory
from nmtdeep.config.model import SIDES
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.stages import Frozen
from nmtdeep.data.batch import Batch, RankBatches, read_batch
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.data.plan import Plan
from nmtdeep.data.position import Position, by_corpus
from nmtdeep.model.build import build, initialize
from nmtdeep.model.growth import carry_over, layer_maps
from nmtdeep.model.initialization import Sample
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.divergence import diagnose, is_lost
from nmtdeep.training.ema import MovingAverage
from nmtdeep.training.graphs import pays_to_compile
from nmtdeep.training.memory import largest_batch, peak_memory, release, too_large
from nmtdeep.training.ranks import ALONE, Ranks
from nmtdeep.training.result import UpdateResult
from nmtdeep.training.sharding import gather_full
from nmtdeep.training.stages import lr_of
from nmtdeep.training.state import Progress, optimizer_tensors, restore_optimizer
from nmtdeep.training.step import Step, resolve_precision
from nmtdeep.units import counted, percent

# Sentences that an initializer measures on.
SAMPLE = 128
# Weights of the last update among the optimizer's tensors, where a checkpoint's are averages.
LATEST = "weight/"


class Trainer:
    """The model of a recipe in training, the same in every rank.

    Args:
        recipe: what to train, and how; of one stage, if there are several.
        data: for its vocabularies, and sentences for an initializer to measure on.
        ranks: the ranks that train it; the device is theirs.
        start: checkpoint to resume from; None: a fresh model.
        dtype: of the matrix products; None: as the recipe says.
        ready: called when nothing can be wrong with model and checkpoint, before slow imports.

    Attributes:
        step: the optimizer step, with model and optimizer.
        average: of the weights, which is validated and saved in their place; None: there is none.
        saved: name of the newest checkpoint; empty before the first one.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: DataDirectory,
        ranks: Ranks = ALONE,
        start: Path | None = None,
        *,
        dtype: torch.dtype | None = None,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        self.recipe = recipe
        self.data = data
        self.ranks = ranks
        self.model = initialized_model(recipe, data)
        if start:
            model_file = start / checkpoint.MODEL
            checkpoint.load_weights(self.model, checkpoint.read_tensors(model_file), model_file)
        untrained, moments = (checkpoint.GROWN, checkpoint.INITIAL), None
        if start and checkpoint.read_state(start).get("kind") not in untrained:
            moments = checkpoint.read_tensors(start / checkpoint.OPTIMIZER)
        ready()
        # Processors of different kinds may have drawn and measured with other roundings.
        ranks.broadcast_tensors(list(checkpoint.weights(self.model).values()))
        freeze(self.model, recipe.training.frozen)
        dtype = dtype or resolve_precision(recipe.training.precision, ranks.device)
        how: dict[str, Any] = {"ranks": ranks, "device": ranks.device}
        how["compiles"] = pays_to_compile(recipe, ranks.device)
        self.step = Step(self.model, recipe.training, dtype=dtype, **how)
        decay = recipe.training.ema
        self.average = MovingAverage(self.model, decay) if decay else None
        self.saved = start.name if start else ""
        self._real = self._padded = 0
        self._newest: tuple[RankBatches, Callable[[], UpdateResult]] | None = None
        if start and moments is not None:
            names = [name for name in moments if name.startswith(LATEST)]
            if latest := {name.removeprefix(LATEST): moments.pop(name) for name in names}:
                checkpoint.load_weights(self.model, latest, start / checkpoint.OPTIMIZER)
            restore_optimizer(self.model, self.step.optimizer, moments)
            if scaler := Progress.of(start).scaler:
                self.step.scaler.load_state_dict(scaler)

    def grown(self, recipe: Recipe) -> Trainer:
        """A trainer of the next stage's `recipe`, whose model has learned what this one has.

        The moments of its optimizer and its loss scale start again (Li et al. 2020's release).
        """
        grown = Trainer(recipe, self.data, self.ranks)
        maps = layer_maps(recipe.training.growth.strategy, self.recipe.model, recipe.model)
        carry_over(self.model, grown.model, **maps)
        if grown.average:
            grown.average.restart()
        grown.saved = self.saved
        return grown

    def check_largest_batch(self, position: Position) -> int:
        """Compute the largest batch of the windows at `position` once, forward and backward.

        If it does not fit, the limit is lower afterwards. Model, optimizer and random numbers are
        as before. All ranks must call this.

        Returns:
            The new limit, 0 if the batch fits.

        Raises:
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        step, device = self.step, self.ranks.device
        packed = self.recipe.uses_packing(device.type)
        tried = []
        for name, place in by_corpus(position, self.data.training).items():
            corpus = self.data.corpus(name)
            plan = Plan(self.recipe.training.seed, self.recipe.training.batches)
            window = plan.window(corpus, place.epoch, place.window)
            largest = largest_batch(window, self.recipe, packed=packed, ranks=self.ranks.size)
            tried.append(read_batch(corpus, window.indices[largest], packed=packed))
        batch = max(tried, key=lambda batch: batch.padded_tokens)
        before = step.limit.tokens
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            if device.type == "cpu" and not step.shards:
                self._lower_limit(batch)
            self._taken(batch)
        return step.limit.tokens if step.limit.tokens < before else 0

    def _taken(self, batch: Batch) -> int:
        """Bytes that a forward and backward pass takes at its peak, on a CPU."""
        memory.forget_peak()
        self.step.forward_backward(RankBatches.single([batch.to(self.ranks.device)]), 0)
        self.step.forget()
        release()
        return peak_memory(self.ranks.device) - memory.resident()

    def _lower_limit(self, batch: Batch) -> None:
        """Lower the limit to what fits by the peaks of a quarter and a half of the largest batch.

        For a CPU, because Linux kills a process without an error.
        """
        limit, few, more = self.step.limit, batch.sentences // 4, batch.sentences // 2
        if not few:
            return
        # When all know the peaks, all have released them.
        quarter, half = self.ranks.all_reduce_max(
            *(self._taken(batch.part(0, count)) for count in (few, more))
        )
        tokens = limit.tokens
        if (free := memory.available()) is not None:
            parameters = self.model.parameters()
            moments = 2 * sum(each.nbytes for each in parameters if each.requires_grad)
            left = free // self.ranks.local_size - moments * (not self.step.optimizer.state) - half
            pairs = int(more + left * (more - few) / max(half - quarter, 1))
            if pairs < 1:
                raise too_large(batch.part(0, 1))
            if pairs < batch.sentences:
                tokens = min(tokens, batch.part(0, pairs).cells)
        limit.reduce(tokens)

    def train(self, share: RankBatches, progress: Progress) -> list[UpdateResult]:
        """Train the update after `progress`, of which this rank computes `share`.

        While a GPU computes it, the host reads the result of the update before.

        Returns:
            That result, if it was not returned before.

        Raises:
            DivergenceError: if updates in a row have no finite numbers; the weights are those
                before them.
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        update = progress.update + 1
        self._real += share.real_tokens
        self._padded += share.padded_tokens
        gradients = self.step.forward_backward(share, update)
        before = self.finish(progress)
        lr = lr_of(self.recipe, progress, update)
        self._newest = share, self.step.apply(gradients, lr)
        if self.average:
            self.average.add(update)
        return before

    def graphs(self) -> str:
        """How many batches were replays of CUDA graphs; empty if there are none."""
        step = self.step
        if not step.replayed:
            return ""
        replayed = f"{percent(step.replayed / step.passes)} of {step.passes:,} batches"
        padding = percent(1 - self._real / self._padded)
        return f"{counted(len(step.graphs), 'CUDA graph')} replayed {replayed}, padding {padding}"

    def finish(self, progress: Progress) -> list[UpdateResult]:
        """Wait for the newest update; its result, if it was not returned before.

        Raises:
            DivergenceError: as `train`.
        """
        if self._newest is None:
            return []
        (share, wait), self._newest = self._newest, None
        result = wait()
        if is_lost(result, progress.bad_updates):
            self.step.forget()  # recorded work would not call the hooks
            raise diagnose(
                result,
                self.model,
                partial(self.step.forward_backward, share, result.number),
                ranks=self.ranks,
                saved=self.saved,
            )
        return [result]

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and moments by name, empty in ranks other than 0. All ranks must call this."""
        weights = checkpoint.weights(self.model)
        moments = optimizer_tensors(self.model, self.step.optimizer)
        if self.average:
            moments |= {f"{LATEST}{name}": weight for name, weight in weights.items()}
            weights = self.average.weights
        keep = self.ranks.is_first
        return gather_full(weights, keep=keep), gather_full(moments, keep=keep)

    def validation_model(self) -> Transformer:
        """The model to validate: itself, or in rank 0 a copy that is whole, or has the average.

        All ranks must call this.
        """
        if not (self.step.shards or self.average):
            return self.model
        weights = self.average.weights if self.average else checkpoint.weights(self.model)
        tensors = gather_full(weights, keep=self.ranks.is_first)
        if not self.ranks.is_first:
            return self.model
        copy = empty_model(self.recipe, self.data)
        checkpoint.load_weights(copy, tensors, Path("the copy"))
        return copy.to(self.ranks.device)


def initialized_model(recipe: Recipe, data: DataDirectory) -> Transformer:
    """The recipe's model for this corpus, initialized.

    An initializer measures on sentences of the first training corpus drawn by the recipe's seed,
    which are the same for every device and rank.
    """
    model, seed = empty_model(recipe, data), recipe.training.seed
    corpus = data.corpus(data.training[0])
    draw = np.random.default_rng(seed)
    chosen = np.sort(draw.choice(len(corpus), min(SAMPLE, len(corpus)), replace=False))
    batch = read_batch(corpus, chosen)
    initialize(model, recipe.model, seed=seed, sample=Sample(batch.source, batch.target_input))
    return model


def freeze(model: Transformer, frozen: Frozen) -> None:
    """Exclude the parts that `frozen` names from training."""
    parts: list[nn.Module] = []
    for side in SIDES:
        stack, layers = getattr(model, side), getattr(frozen, side)
        parts += [stack] if layers == "all" else list(stack)[:layers]
    if frozen.embeddings:
        parts += [model.source_embedding, model.target_embedding, model.output]
    for part in parts:
        part.requires_grad_(False)


def empty_model(recipe: Recipe, data: DataDirectory) -> Transformer:
    """The recipe's model for this corpus, without values yet."""
    return build(recipe.model, **data.pipeline.sizes)
