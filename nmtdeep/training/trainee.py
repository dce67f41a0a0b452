"""The model in training with everything that moves with it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nmtdeep import checkpoint
from nmtdeep.config import Recipe
from nmtdeep.data.batching import Batch, Share, collate
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.build import build, initialize
from nmtdeep.model.growth import carry_over, layer_maps
from nmtdeep.model.initialization import Sample
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.distributed import Crew, Order
from nmtdeep.training.divergence import History, diagnose, is_lost
from nmtdeep.training.loss import Loss
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.room import Room
from nmtdeep.training.run_directory import RunDirectory
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.sharding import Shards, gathered, idle
from nmtdeep.training.state import Progress, optimizer_tensors, restore_optimizer
from nmtdeep.training.update import (
    UpdateResult,
    batch_loss,
    resolve_precision,
    seed_for,
    train_update,
)

# Sentences that an initializer measures on.
SAMPLE = 128


class Trainee:
    """The model in training, its optimizer and loss scaler.

    Args:
        recipe: what to train, and how; of one stage, if there are several.
        data: for its vocabularies, and sentences for an initializer to measure on.
        device: where.
        start: checkpoint to go on from; None: a fresh model.
        crew: the processes that train it.

    Attributes:
        saved: name of the newest checkpoint, in the first process; empty if there is none.
        warning: what the last update gives reason to say; mostly nothing.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: DataDirectory,
        device: torch.device,
        start: Path | None,
        crew: Crew,
    ) -> None:
        self.recipe = recipe
        self.data = data
        self.crew = crew
        self.device = device
        self.model = fresh_model(recipe, data)
        if start:
            model_file = start / checkpoint.MODEL
            checkpoint.fill(self.model, checkpoint.read_tensors(model_file), model_file)
            checkpoint.check_finite(self.model, model_file)
        # Processors of different kinds may have drawn and measured with other roundings.
        crew.share(list(checkpoint.weights(self.model).values()))
        for stack, frozen in (
            (self.model.encoder, recipe.training.frozen.encoder),
            (self.model.decoder, recipe.training.frozen.decoder),
        ):
            for layer in list(stack)[:frozen]:
                layer.requires_grad_(False)
        self.dtype = resolve_precision(recipe.training.precision, device)
        self.shards = None
        if recipe.training.sharding == "full":
            self.shards = Shards(self.model, self._loss, device)
        self.model.to(device)
        self.optimizer = make_optimizer(
            self.model, recipe.training.optimizer, dtype=self.dtype, crew=crew
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)
        self.room = Room(divides=self.shards is None)
        self.history = History()
        self.warning = ""
        self.saved = start.name if start else ""
        if start:
            self._restore(start)

    def deeper(self, recipe: Recipe, data: DataDirectory) -> Trainee:
        """A trainee of the next stage's `recipe` that has learned what this one has.

        Its optimizer's moments and its loss scaler start anew (Li et al. 2020's release).
        """
        grown = Trainee(recipe, data, self.device, None, self.crew)
        maps = layer_maps(recipe.training.growth.strategy, self.recipe.model, recipe.model)
        carry_over(self.model, grown.model, **maps)
        grown.saved = self.saved
        return grown

    def loss_of(self, batch: Batch) -> Loss:
        """The sums of one batch; all processes must call this if the model is sharded."""
        return self.shards(batch) if self.shards else self._loss(self.model, batch)

    def _loss(self, model: Transformer, batch: Batch) -> Loss:
        settings = self.recipe.training
        return batch_loss(
            model,
            batch,
            smoothing=settings.label_smoothing,
            dtype=self.dtype,
            regularizer=settings.regularizer,
        )

    def _restore(self, path: Path) -> None:
        """Take moments and loss scale from a checkpoint."""
        moments = path / checkpoint.OPTIMIZER
        if checkpoint.read_state(path).get("kind") == checkpoint.GROWN:
            return  # it has no moments: they start anew
        restore_optimizer(self.model, self.optimizer, checkpoint.read_tensors(moments))
        scaler = Progress.of(path).scaler
        if scaler and self.scaler.is_enabled():
            self.scaler.load_state_dict(scaler)

    def lr(self, update: int, offset: int = 0) -> float:
        """The learning rate of update number `update`, if the schedule leaves out `offset`."""
        return learning_rate(
            self.recipe.training.schedule,
            update,
            width=self.recipe.model.width,
            max_updates=self.recipe.training.max_updates,
            offset=offset,
        )

    def train(self, share: Share, progress: Progress) -> UpdateResult:
        """Train the update after `progress`, of which this process computes `share`.

        Raises:
            DivergenceError: if numbers stay without sense; weights are those of before.
            OutOfMemoryError: if memory does not hold the smallest batch.
        """
        update = progress.update + 1
        result = train_update(
            self.model,
            self.optimizer,
            self.scaler,
            share,
            update=update,
            lr=self.lr(update, progress.schedule_offset),
            settings=self.recipe.training,
            dtype=self.dtype,
            crew=self.crew,
            shards=self.shards,
            room=self.room,
        )
        self.warning = self.history.add(update, result)
        if is_lost(result, progress.bad_updates):
            raise diagnose(
                update,
                result,
                self.model,
                partial(self._look_again, share, update),
                recipe=self.recipe,
                history=self.history,
                crew=self.crew,
                saved=self.saved,
            )
        return result

    def _look_again(self, share: Share, update: int) -> None:
        """The loss of an update's batches once more, for those who watch."""
        for number, batch in share.batches:
            for part, rows in enumerate(self.room.parts(batch)):
                torch.manual_seed(seed_for(self.recipe.training.seed, update, number, part))
                self.loss_of(rows)
        if self.shards:
            for _ in range(share.passes - len(share.batches)):
                self.loss_of(idle(self.device))

    def whole(self) -> Transformer:
        """The model to be measured: itself, or a whole copy of a sharded one.

        Only the first process calls this; the others `help`.
        """
        if not self.shards:
            return self.model
        copy = built(self.recipe, self.data)
        checkpoint.fill(copy, self._gathered(Order.GATHER_WEIGHTS), Path("the shards"))
        return copy.to(self.device)

    def help(self) -> Order:
        """In all processes but the first: do what it says, until it goes on or leaves."""
        while True:
            order = self.crew.agree(Order.GO_ON)
            if order in (Order.GO_ON, Order.LEAVE):
                return order
            gathered(self._tensors(order), keep=False)

    def _gathered(self, order: Order) -> dict[str, Tensor]:
        """What `order` names, from all processes if it is sharded."""
        if not self.shards:
            return dict(self._tensors(order))
        self.crew.agree(order)
        return gathered(self._tensors(order), keep=True)

    def _tensors(self, order: Order) -> Iterable[tuple[str, Tensor]]:
        if order == Order.GATHER_WEIGHTS:
            return checkpoint.weights(self.model).items()
        return optimizer_tensors(self.model, self.optimizer).items()

    def save(self, run: RunDirectory, progress: Progress, *, planned: bool) -> None:
        """Write a checkpoint of weights, moments and position; see `RunDirectory.save`."""
        path = run.save(
            self._gathered(Order.GATHER_WEIGHTS),
            self._gathered(Order.GATHER_MOMENTS),
            progress,
            recipe=self.recipe,
            planned=planned,
        )
        self.saved = path.name


def fresh_model(recipe: Recipe, data: DataDirectory) -> Transformer:
    """The recipe's model for this corpus, initialized."""
    model = built(recipe, data)
    initialize(model, recipe.model, seed=recipe.training.seed, sample=sample_of(recipe, data))
    return model


def built(recipe: Recipe, data: DataDirectory) -> Transformer:
    """The recipe's model for this corpus, without values yet."""
    pipeline = data.pipeline
    return build(
        recipe.model,
        source_types=len(pipeline.source.vocabulary),
        target_types=len(pipeline.target.vocabulary),
    )


def sample_of(recipe: Recipe, data: DataDirectory) -> Sample:
    """Training sentences drawn by the recipe's seed, the same for every device and process."""
    corpus = data.corpus("train")
    draw = np.random.default_rng(recipe.training.seed)
    chosen = np.sort(draw.choice(len(corpus), min(SAMPLE, len(corpus)), replace=False))
    batch = collate(corpus, chosen)
    return Sample(batch.source, batch.target_input)
