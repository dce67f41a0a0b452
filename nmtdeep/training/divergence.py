"""Detects a training that diverges; reports the layer where it begins, and suggestions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nmtdeep.errors import DivergenceError
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.step import UpdateResult

# Number of consecutive updates without a finite gradient that end a training.
PATIENCE = 3
# fp16: a training ends when the loss scale falls below this.
SMALLEST_SCALE = 2.0**-10
ADVICE = (
    "half the learning rate, twice the warm-up or training.clip_norm=1; a deep post-norm model may "
    "need a new run with pre_norm or model.initializer=depth_scaled"
)
# Modules outside the layers.
EDGES = ("source_embedding", "target_embedding", "encoder.norm", "decoder.norm")


def is_lost(result: UpdateResult, bad_before: int) -> bool:
    """Whether the training must end after this update, with `bad_before` bad ones before it."""
    too_small = 0 < result.scale < SMALLEST_SCALE
    return too_small or (result.is_bad and bad_before + 1 >= PATIENCE)


def diagnose(
    result: UpdateResult,
    model: Transformer,
    recompute: Callable[[], object],
    *,
    ranks: Ranks,
    saved: str,
) -> DivergenceError:
    """The error after an update, with the layer where it begins. All ranks must call this.

    Args:
        recompute: computes this rank's batches and the gradients again.
        saved: name of the newest checkpoint; empty before the first one.
    """
    origin = _first_forward(model, recompute, ranks) or _first_backward(model)
    if result.scale:
        what = f"fp16's loss scale fell to {result.scale:.1e}"
    else:
        loss = result.loss / max(result.target_tokens, 1)
        what = (
            f"loss {loss:.3f} per token, gradient norm {result.gradient_norm:.3g}, not finite in "
            f"{PATIENCE} consecutive updates"
        )
    kept = f"{saved} is intact, and training resumes from it" if saved else "nothing is saved yet"
    advice = f"--precision bf16, {ADVICE}" if result.scale else ADVICE
    what = f"training diverged at update {result.number}: {what}; {origin}"
    return DivergenceError(what, hint=f"{kept}; try {advice}")


def _first_forward(model: Transformer, recompute: Callable[[], object], ranks: Ranks) -> str:
    """The first sublayer whose output is not finite; empty if all outputs are finite."""
    modules = {
        name: module
        for name, module in model.named_modules()
        if hasattr(module, "sublayer") or name in EDGES
    }
    bad = torch.zeros(len(modules), device=model.output.weight.device)

    def check(index: int, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        bad[index] += (~output.isfinite()).any()

    # The code of compiled layers does not call hooks.
    with torch.compiler.set_stance("force_eager"), ExitStack() as hooks:
        for index, module in enumerate(modules.values()):
            hooks.callback(module.register_forward_hook(partial(check, index)).remove)
        recompute()
    ranks.all_reduce([bad])
    for (name, module), count in zip(modules.items(), bad.tolist(), strict=True):
        if count:
            kind = type(getattr(module, "sublayer", module)).__name__
            return f"{name} ({kind}) is the first module whose output is not finite"
    return ""


def _first_backward(model: Transformer) -> str:
    """Weights, gradients or their squares that are not finite, if all outputs are finite."""

    def is_bad(tensor: Tensor) -> bool:
        return not tensor.detach().isfinite().all()

    trained = [(name, each) for name, each in model.named_parameters() if each.grad is not None]
    for name, parameter in trained:
        if is_bad(parameter):
            return f"{name} is not finite"
    for name, parameter in trained:
        if parameter.grad is not None and is_bad(parameter.grad):
            return f"all outputs are finite, but the gradient of {name} is not"
    return "all gradients are finite, but the sum of their squares is not"
