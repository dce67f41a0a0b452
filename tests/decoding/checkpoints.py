"""Checkpoints of models that are set by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nmtdeep import checkpoint
from nmtdeep.config.model import Model
from nmtdeep.config.recipe import Recipe
from nmtdeep.model.build import build, initialize
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.state import Progress


def saved(
    tiny_run: Any, path: Path, config: Model, change: Callable[[Transformer], object]
) -> Path:
    """A checkpoint with the text of the tiny run, and an untrained model that `change` changes."""
    recipe = Recipe.model_validate(tiny_run.recipe.model_dump() | {"model": config.model_dump()})
    types = len(tiny_run.pipeline.source.vocabulary)
    model = build(recipe.model, source_types=types, target_types=types)
    initialize(model, recipe.model, seed=1)
    with torch.no_grad():
        change(model)
    checkpoint.save(
        path,
        tensors=checkpoint.weights(model),
        optimizer={},
        state=Progress(update=20).to_json(),
        recipe=recipe,
        pipeline=tiny_run.pipeline,
    )
    return path
