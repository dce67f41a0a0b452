"""The model in training with everything that moves with it."""

from __future__ import annotations

from pathlib import Path

import torch

from nmtdeep import checkpoint
from nmtdeep.config import Recipe
from nmtdeep.data.batching import Share
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.build import build, initialise
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.distributed import Crew
from nmtdeep.training.optimiser import make_optimiser
from nmtdeep.training.run_directory import RunDirectory
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.state import Progress, optimiser_tensors, restore_optimiser
from nmtdeep.training.update import UpdateResult, resolve_precision, train_update


class Trainee:
    """The model in training, its optimiser and loss scaler.

    Args:
        recipe: what to train, and how.
        data: for its vocabularies.
        device: where.
        start: checkpoint to go on from; None: a fresh model.
        crew: the processes that train it.
    """

    def __init__(
        self,
        recipe: Recipe,
        data: DataDirectory,
        device: torch.device,
        start: Path | None,
        crew: Crew,
    ) -> None:
        pipeline = data.pipeline
        self.recipe = recipe
        self.crew = crew
        self.device = device
        self.model: Transformer = build(
            recipe.model,
            source_types=len(pipeline.source.vocabulary),
            target_types=len(pipeline.target.vocabulary),
        )
        initialise(self.model, recipe.model, seed=recipe.training.seed)
        self.model.to(device)
        self.dtype = resolve_precision(recipe.training.precision, device)
        self.optimiser = make_optimiser(
            self.model, recipe.training.optimiser, dtype=self.dtype, crew=crew
        )
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)
        if start:
            self._restore(start)

    def _restore(self, path: Path) -> None:
        """Take weights, moments and loss scale from a checkpoint."""
        model_file, moments = path / checkpoint.MODEL, path / checkpoint.OPTIMISER
        checkpoint.fill(self.model, checkpoint.read_tensors(model_file), model_file)
        restore_optimiser(self.model, self.optimiser, checkpoint.read_tensors(moments))
        scaler = Progress.of(path).scaler
        if scaler and self.scaler.is_enabled():
            self.scaler.load_state_dict(scaler)

    def lr(self, update: int) -> float:
        """The learning rate of update number `update`."""
        return learning_rate(
            self.recipe.training.schedule,
            update,
            width=self.recipe.model.width,
            max_updates=self.recipe.training.max_updates,
        )

    def train(self, share: Share, update: int) -> UpdateResult:
        """Train update number `update`, of which this process computes `share`."""
        return train_update(
            self.model,
            self.optimiser,
            self.scaler,
            share,
            update=update,
            lr=self.lr(update),
            settings=self.recipe.training,
            dtype=self.dtype,
            crew=self.crew,
        )

    def save(self, run: RunDirectory, progress: Progress, *, planned: bool) -> None:
        """Write a checkpoint of weights, moments and position; see `RunDirectory.save`."""
        run.save(
            checkpoint.weights(self.model),
            optimiser_tensors(self.model, self.optimiser),
            progress,
            planned=planned,
        )
