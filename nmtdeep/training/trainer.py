"""The model in training, with its optimizer step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nmtdeep import checkpoint, memory
from nmtdeep.config.model import SIDES
from nmtdeep.config.stages import Frozen
from nmtdeep.data.batch import Batch, RankBatches, read_batch
from nmtdeep.data.plan import Plan
from nmtdeep.data.position import Position, by_corpus
from nmtdeep.model.build import build, initialize
from nmtdeep.model.growth import carry_over, layer_maps
from nmtdeep.model.initialization import Sample
from nmtdeep.model.quantization import round_products
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.divergence import diagnose, is_lost
from nmtdeep.training.graphs import pays_to_compile
from nmtdeep.training.memory import largest_batch, peak_memory, release, too_large
from nmtdeep.training.setup import Setup
from nmtdeep.training.stage_control import lr_of
from nmtdeep.training.state import Progress, optimizer_tensors, restore_optimizer
from nmtdeep.training.step import Step, UpdateResult
from nmtdeep.units import counted, percent

# Sentences that an initializer measures on.
SAMPLE = 128
# Weights of the last update among the optimizer's tensors, where a checkpoint's are averages.
LATEST = "weight/"
# How many updates are in the average.
AVERAGED = "averaged"


class Trainer:
    """The model of a recipe in training, the same in every rank.

    Args:
        setup: of one stage.
        start: checkpoint to resume from; None: a fresh model.
        ready: called when nothing can be wrong with model and checkpoint, before slow imports.

    Attributes:
        average: of the weights, which is validated and saved in their place.
        saved: name of the newest checkpoint; empty before the first one.
    """

    def __init__(
        self,
        setup: Setup,
        start: Path | None = None,
        *,
        ready: Callable[[], object] = lambda: None,
    ) -> None:
        self.setup = setup
        self.model = initialized_model(setup)
        if start:
            model_file = start / checkpoint.MODEL
            checkpoint.load_weights(self.model, checkpoint.read_tensors(model_file), model_file)
        untrained, moments = (checkpoint.GROWN, checkpoint.INITIAL), None
        if start and checkpoint.read_state(start).get("kind") not in untrained:
            moments = checkpoint.read_tensors(start / checkpoint.OPTIMIZER)
        ready()
        # Processors of different kinds may have drawn and measured with other roundings.
        setup.ranks.broadcast_tensors(list(checkpoint.weights(self.model).values()))
        training = setup.recipe.training
        freeze(self.model, training.frozen)
        self.step = Step(
            self.model,
            training,
            dtype=setup.dtype,
            ranks=setup.ranks,
            device=setup.device,
            compiles=pays_to_compile(setup),
        )
        self.average = MovingAverage(self.model, training.ema) if training.ema else None
        self.saved = start.name if start else ""
        self._real = self._padded = 0
        self._newest: tuple[RankBatches, Callable[[], UpdateResult]] | None = None
        if start and moments is not None:
            names = [name for name in moments if name.startswith(LATEST)]
            averaged = moments.pop(AVERAGED, None)
            if latest := {name.removeprefix(LATEST): moments.pop(name) for name in names}:
                checkpoint.load_weights(self.model, latest, start / checkpoint.OPTIMIZER)
                if self.average:  # runs of before count the updates of the training
                    of_run = Progress.of(start).update
                    self.average.updates = of_run if averaged is None else int(averaged)
            restore_optimizer(self.model, self.step.optimizer, moments)
            if scaler := Progress.of(start).scaler:
                self.step.passes.scaler.load_state_dict(scaler)

    def grown(self, setup: Setup) -> Trainer:
        """A trainer of the next stage, whose model has learned what this one has.

        The moments of its optimizer and its loss scale start again (Li et al. 2020's release).
        """
        grown = Trainer(setup)
        old, new = self.setup.recipe.model, setup.recipe.model
        maps = layer_maps(setup.recipe.training.growth.strategy, old, new)
        carry_over(self.model, grown.model, **maps)
        if grown.average:
            grown.average = MovingAverage(grown.model, grown.average.decay)
        grown.saved = self.saved
        return grown

    def check_largest_batch(self, position: Position) -> int:
        """Compute the largest batch of the windows at `position` once, forward and backward.

        If it does not fit, the limit is lower afterwards, and returned, else 0. Model, optimizer
        and random numbers are as before. All ranks must call this.

        Raises:
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        setup, limit = self.setup, self.step.limit
        training, tried = setup.recipe.training, []
        plan = Plan(training.seed, training.batches)
        for name, place in by_corpus(position, setup.data.training).items():
            corpus = setup.data.corpus(name)
            window = plan.window(corpus, place.epoch, place.window)
            indices = window.indices[largest_batch(window, setup)]
            tried.append(read_batch(corpus, indices, packed=setup.packed))
        batch = max(tried, key=lambda batch: batch.padded_tokens)
        before = limit.tokens
        with torch.random.fork_rng([setup.device] if setup.device.type == "cuda" else []):
            if setup.device.type == "cpu":
                self._lower_limit(batch)
            self._taken(batch)
        return limit.tokens if limit.tokens < before else 0

    def _taken(self, batch: Batch) -> int:
        """Bytes that a forward and backward pass takes at its peak, on a CPU."""
        memory.forget_peak()
        self.step.forward_backward(RankBatches.single([batch.to(self.setup.device)]), 0)
        self.step.forget()
        release()
        return peak_memory(self.setup.device) - memory.resident()

    def _lower_limit(self, batch: Batch) -> None:
        """Lower the limit to what fits by the peaks of a quarter and a half of the largest batch.

        For a CPU, because Linux kills a process without an error.
        """
        limit, few, more = self.step.limit, batch.sentences // 4, batch.sentences // 2
        if not few:
            return
        ranks, tokens = self.setup.ranks, limit.tokens
        # When all know the peaks, all have released them.
        quarter, half = ranks.all_reduce_max(
            *(self._taken(batch.part(0, count)) for count in (few, more))
        )
        if (free := memory.available()) is not None:
            # Adam has yet to make two moments of each weight before its first step.
            parameters = [] if self.step.optimizer.state else self.model.parameters()
            moments = 2 * sum(each.nbytes for each in parameters if each.requires_grad)
            left = free // ranks.local_size - moments - half
            pairs = int(more + left * (more - few) / max(half - quarter, 1))
            if pairs < 1:
                raise too_large(batch.part(0, 1))
            if pairs < batch.sentences:
                tokens = min(tokens, batch.part(0, pairs).cells)
        limit.reduce(tokens)

    def train(self, batches: RankBatches, progress: Progress) -> list[UpdateResult]:
        """Train the update after `progress`, of which this rank computes `batches`.

        While a GPU computes it, the host reads the result of the update before, which is returned
        if it was not before.

        Raises:
            DivergenceError: if updates in a row have no finite numbers; the weights are those
                before them.
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        update = progress.update + 1
        self._real += batches.real_tokens
        self._padded += batches.padded_tokens
        gradients = self.step.forward_backward(batches, update)
        before = self.finish(progress)
        lr = lr_of(self.setup.recipe, progress, update)
        self._newest = batches, self.step.apply(gradients, lr)
        if self.average:
            self.average.add()
        return before

    def graphs(self) -> str:
        """How many batches were replays of CUDA graphs; empty if there are none."""
        passes = self.step.passes
        if not passes.replayed:
            return ""
        replayed = f"{percent(passes.replayed / passes.count)} of {passes.count:,} batches"
        padding = percent(1 - self._real / self._padded)
        graphs = counted(len(passes.graphs), "CUDA graph")
        return f"{graphs} replayed {replayed}, padding {padding}"

    def finish(self, progress: Progress) -> list[UpdateResult]:
        """Wait for the newest update; its result, if there is one. Raises as `train`."""
        if self._newest is None:
            return []
        (batches, wait), self._newest = self._newest, None
        result = wait()
        if is_lost(result, progress.bad_updates):
            self.step.forget()  # recorded work would not call the hooks
            raise diagnose(
                result,
                self.model,
                partial(self.step.forward_backward, batches, result.number),
                ranks=self.setup.ranks,
                saved=self.saved,
            )
        return [result]

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Weights and moments by name."""
        weights = checkpoint.weights(self.model)
        moments = optimizer_tensors(self.model, self.step.optimizer)
        if self.average:
            moments |= {f"{LATEST}{name}": weight for name, weight in weights.items()}
            moments[AVERAGED] = torch.tensor(self.average.updates)
            weights = self.average.weights
        return weights, moments

    def validation_model(self) -> Transformer:
        """The model, or a copy that has the average."""
        if not self.average:
            return self.model
        copy = empty_model(self.setup)
        checkpoint.load_weights(copy, self.average.weights, Path("the copy"))
        return copy.to(self.setup.device)


def initialized_model(setup: Setup) -> Transformer:
    """The recipe's model for this corpus, initialized.

    An initializer measures on sentences of the first training corpus drawn by the recipe's seed,
    which are the same for every device and rank.
    """
    model, recipe, seed = empty_model(setup), setup.recipe, setup.recipe.training.seed
    corpus = setup.data.corpus(setup.data.training[0])
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


def empty_model(setup: Setup) -> Transformer:
    """The recipe's model for this corpus, without values yet."""
    model = build(setup.recipe.model, **setup.data.pipeline.sizes)
    if setup.recipe.training.quantization == "int8":
        round_products(model)
    return model


class MovingAverage:
    """v <- d v + (1 - d) w after update t of the average, with d = min(decay, (1 + t) / (10 + t)).

    The rule of TensorFlow's `ExponentialMovingAverage` with `num_updates`: a small d at the start
    soon forgets the first weights.

    Attributes:
        weights: v by name; the first v are the weights that the model has now.
        updates: t so far.
    """

    def __init__(self, model: Transformer, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self._current = checkpoint.weights(model)
        self.weights = {name: weight.clone() for name, weight in self._current.items()}

    def add(self) -> None:
        """Include the weights after an update."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        weights, current = list(self.weights.values()), list(self._current.values())
        torch._foreach_lerp_(weights, current, 1 - decay)
