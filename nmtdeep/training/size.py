"""A model that no machine like this one holds is refused before it is built."""

from __future__ import annotations

import os

import torch

from nmtdeep.config import Recipe
from nmtdeep.config.model import Model, Stack
from nmtdeep.config.slots import Relative
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.units import size

BYTES = 4
# What an optimizer keeps of a matrix.
MOMENTS = {"adam": ("first moments", "second moments"), "muon": ("momentum",)}
# Square matrices of each sublayer, at least; a feed-forward sublayer has two of its own size.
SQUARES = {"self_attention": 4, "cross_attention": 4, "merged_attention": 3}


def least_parameters(model: Model, types: int) -> int:
    """Parameters of the matrices that every such model has; computed, not counted.

    Args:
        types: of the target vocabulary.
    """
    encoder = _layers(model, model.encoder, ("self_attention", "feed_forward"))
    decoder = _layers(model, model.decoder, tuple(part.type for part in model.decoder.sublayers))
    return encoder + decoder + types * model.width


def _layers(model: Model, stack: Stack, sublayers: tuple[str, ...]) -> int:
    squares = sum(SQUARES.get(name, 0) for name in sublayers) * model.width**2
    feed_forward = sublayers.count("feed_forward") * 2 * model.width * stack.feed_forward
    clipped = 0
    if isinstance(model.positions, Relative) and "self_attention" in sublayers:
        clipped = (2 * model.positions.clip + 1) * (model.width // stack.heads)
    return stack.depth * (squares + feed_forward + clipped)


def check_training_size(
    recipe: Recipe, data: DataDirectory, device: torch.device, processes: int
) -> None:
    """Check that what a training keeps of the model alone is less than all the memory there is.

    Raises:
        UserError: naming both.
    """
    sharded = recipe.training.sharding == "full" and device.type == "cuda"
    check_size(
        recipe.model,
        len(data.pipeline.target.vocabulary),
        device,
        kept=("weights", "gradients", *MOMENTS[recipe.training.optimizer.type]),
        shards=processes if sharded else 1,
        hint="" if device.type == "cpu" else ", or training.sharding=full and more processes",
    )


def check_size(
    model: Model,
    types: int,
    device: torch.device,
    *,
    kept: tuple[str, ...] = ("weights",),
    shards: int = 1,
    hint: str = "",
) -> None:
    """Check that `kept`, one number of each parameter each, is less than all the memory there is.

    Args:
        types: of the target vocabulary.
        shards: processes over which they are spread.
        hint: besides a smaller model.

    Raises:
        UserError: naming both.
    """
    parameters = least_parameters(model, types)
    needed, there = parameters * BYTES * len(kept) // shards, _memory(device)
    if needed > there:
        name = "this machine" if device.type == "cpu" else "the GPU"
        *most, last = kept
        what = f"{', '.join(most)} and {last}" if most else last
        raise UserError(
            f"a model of at least {parameters:,} parameters takes {size(needed)} for "
            f"{what}, and {name} has {size(there)}: lower model.width, a depth or "
            f"feed_forward{hint}"
        )


def _memory(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
