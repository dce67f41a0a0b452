"""The model in training with everything that moves with it."""

from __future__ import annotations

from pathlib import Path

import torch

from nmtdeep import checkpoint
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.build import build, initialise
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.run_directory import RunDirectory
from nmtdeep.training.state import Progress, optimiser_tensors, restore_optimiser
from nmtdeep.training.update import make_optimiser, resolve_precision


class Trainee:
    """The model in training, its optimiser and loss scaler."""

    def __init__(self, recipe: Recipe, data: DataDirectory, device: torch.device) -> None:
        pipeline = data.pipeline
        self.model: Transformer = build(
            recipe.model,
            source_types=len(pipeline.source.vocabulary),
            target_types=len(pipeline.target.vocabulary),
        )
        initialise(self.model, recipe.model, seed=recipe.training.seed)
        self.model.to(device)
        self.dtype = resolve_precision(recipe.training.precision, device)
        self.optimiser = make_optimiser(self.model, recipe.training.optimiser)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def restore(self, path: Path) -> Progress:
        """Take weights, moments and position from a checkpoint."""
        progress = Progress.from_json(checkpoint.read_state(path))
        model_file, moments = path / checkpoint.MODEL, path / checkpoint.OPTIMISER
        checkpoint.fill(self.model, checkpoint.read_tensors(model_file), model_file)
        restore_optimiser(self.model, self.optimiser, checkpoint.read_tensors(moments))
        if progress.scaler and self.scaler.is_enabled():
            self.scaler.load_state_dict(progress.scaler)
        return progress

    def save(self, run: RunDirectory, progress: Progress, *, planned: bool) -> None:
        """Write a checkpoint of weights, moments and position; see `RunDirectory.save`."""
        run.save(
            checkpoint.weights(self.model),
            optimiser_tensors(self.model, self.optimiser),
            progress,
            planned=planned,
        )
