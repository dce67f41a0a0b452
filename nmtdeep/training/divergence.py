"""Notices a training that diverges, and reports the layer where it begins and what may help."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nmtdeep.config import slots
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Noam
from nmtdeep.errors import DivergenceError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.sharding import whole
from nmtdeep.training.step import UpdateResult
from nmtdeep.units import counted

# So many consecutive updates without a finite gradient end a training.
PATIENCE = 3
# fp16: a training ends when the loss scale falls below this.
SMALLEST_SCALE = 2.0**-10


def is_lost(result: UpdateResult, bad_before: int) -> bool:
    """Whether the training must end after this update, with `bad_before` bad ones before it."""
    too_small = 0 < result.scale < SMALLEST_SCALE
    return too_small or (result.is_bad and bad_before + 1 >= PATIENCE)


def diagnose(
    update: int,
    result: UpdateResult,
    model: Transformer,
    recompute: Callable[[], object],
    *,
    recipe: Recipe,
    ranks: Ranks,
    saved: str,
) -> DivergenceError:
    """What is wrong after `update`, in which layer, and what to try.

    All ranks must call this. The gradients of the update must still be in the model.

    Args:
        recompute: computes this rank's batches again, and may replace the gradients.
        saved: name of the newest checkpoint; empty if there is none.
    """
    backward = _first_backward(model)
    origin = _first_forward(model, recompute, ranks) or backward
    if result.scale:
        what = f"fp16's loss scale fell to {result.scale:.1e}"
    else:
        loss = result.loss / max(result.target_tokens, 1)
        what = (
            f"loss {loss:.3f} per token, gradient norm {result.gradient_norm:.3g}, not finite in "
            f"{PATIENCE} consecutive updates"
        )
    kept = f"{saved} is intact, and training resumes from it" if saved else "nothing is saved yet"
    return DivergenceError(
        f"training diverged at update {update}: {what}; {origin}",
        hint=f"{kept}; try {', '.join(suggestions(recipe))}",
    )


def suggestions(recipe: Recipe) -> list[str]:
    """Changes that may help, most promising first, without those that the recipe has already."""
    training, schedule = recipe.training, recipe.training.schedule
    stacks = (recipe.model.encoder, recipe.model.decoder)
    post_norm = any(isinstance(stack.residual, slots.PostNorm) for stack in stacks)
    if isinstance(schedule, Noam):
        lower = f"training.schedule.scale={schedule.scale / 2:g}"
    else:
        lower = f"--lr {schedule.lr / 2:g}"
    changes = {
        # Deep post-norm models rarely train from Glorot's values.
        "a new run with pre_norm or model.initializer=depth_scaled": (
            post_norm and isinstance(recipe.model.initializer, slots.Glorot)
        ),
        lower: True,
        f"training.schedule.warmup_updates={2 * schedule.warmup_updates}": True,
        "training.clip_norm=1": not training.clip_norm,
        "--precision bf16 or fp32": training.precision == "fp16",
    }
    return [change for change, helps in changes.items() if helps]


def _first_forward(model: Transformer, recompute: Callable[[], object], ranks: Ranks) -> str:
    """The first sublayer whose output is not finite; empty if all outputs are finite."""
    modules = dict(_sublayers(model))
    bad = torch.zeros(len(modules), device=model.output.weight.device)

    def check(index: int, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        bad[index] += (~output.isfinite()).any()

    with ExitStack() as hooks:
        for index, module in enumerate(modules.values()):
            hooks.callback(module.register_forward_hook(partial(check, index)).remove)
        recompute()
    ranks.add([bad])
    names = [name for name, count in zip(modules, bad.tolist(), strict=True) if count]
    return f"{names[0]} is the first module whose output is not finite" if names else ""


def _sublayers(model: Transformer) -> Iterator[tuple[str, nn.Module]]:
    """Embeddings, sublayers and last norms with their names, in the order of computation."""
    for side, embedding in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
        yield embedding, getattr(model, embedding)
        stack = getattr(model, side)
        for number, layer in enumerate(stack):
            for index, wrapper in enumerate(layer):
                kind = type(wrapper.sublayer).__name__
                yield f"{side}.layers.{number}.sublayers.{index} ({kind})", wrapper
        yield f"{side}.norm", stack.norm


def _first_backward(model: Transformer) -> str:
    """What is not finite if all outputs are finite: weights, gradients or their squares."""

    def is_bad(tensor: Tensor) -> bool:
        return not whole(tensor.detach()).isfinite().all()

    trained = {name: each for name, each in model.named_parameters() if each.grad is not None}
    for name, parameter in trained.items():
        if is_bad(parameter):
            return f"{name} is not finite"
    bad = [name for name, each in trained.items() if each.grad is not None and is_bad(each.grad)]
    if bad:
        return (
            f"all outputs are finite, but the gradients of {counted(len(bad), 'parameter')} are "
            f"not, the first is {bad[0]}"
        )
    return "all gradients are finite, but the sum of their squares is not"
