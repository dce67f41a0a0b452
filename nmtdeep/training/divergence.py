"""Training that goes astray: noticed, and said with the layer and what to try."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.config import Recipe, slots
from nmtdeep.config.training import Noam
from nmtdeep.errors import DivergenceError
from nmtdeep.model.transformer import Transformer
from nmtdeep.tables import as_lines, table
from nmtdeep.training.distributed import Crew
from nmtdeep.training.sharding import local
from nmtdeep.training.update import UpdateResult
from nmtdeep.units import percent

# Updates in a row without a finite gradient that end a training, and fp16's last loss scale.
PATIENCE = 3
SMALLEST_SCALE = 2.0**-10
# Updates whose median is the level of now, and updates that a diagnosis remembers.
LEVEL, MEMORY = 25, 100
# Nats per target token: a healthy training does not rise so far above its best level.
RISE = 1.0
VANISHED = 1e-7
WORST = 8


class History:
    """Loss and gradient norm of the last updates; what is said depends on them, no update does."""

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=MEMORY)
        self.norms: deque[float] = deque(maxlen=MEMORY)
        self._lowest, self._lowest_at = math.inf, 0
        self._warned = False

    def add(self, update: int, result: UpdateResult) -> str:
        """Count one update; a warning if it is the first that seems to go astray, else nothing."""
        if result.skipped:
            return ""
        self.losses.append(result.nll / max(result.target_tokens, 1))
        self.norms.append(result.gradient_norm)
        if len(self.losses) < LEVEL:
            return ""
        level, norm = median(list(self.losses)[-LEVEL:]), median(list(self.norms)[-LEVEL:])
        if level < self._lowest:
            self._lowest, self._lowest_at = level, update
        risen, vanished = level > self._lowest + RISE, norm < VANISHED
        if self._warned or not (risen or vanished):
            self._warned = self._warned and (vanished or level > self._lowest + RISE / 2)
            return ""
        self._warned = True
        now = f"warning: at update {update} the median of the last {LEVEL} updates is "
        if vanished:
            return f"{now}a gradient norm of {norm:.1e}: hardly anything is learned any more"
        return (
            f"{now}nll {level:.3f}, after {self._lowest:.3f} at update {self._lowest_at}: the "
            "training may be diverging; if it does not recover, go on from an earlier checkpoint "
            "with a lower --lr"
        )

    def __str__(self) -> str:
        if not self.losses:
            return "before: no update with finite numbers"
        last = ", ".join(f"{norm:.3g}" for norm in list(self.norms)[-3:])
        return (
            f"before: nll {median(self.losses):.3f} and gradient norm {median(self.norms):.3g} "
            f"(medians of {len(self.losses)} updates), the last norms {last}"
        )


def is_lost(result: UpdateResult, bad_before: int) -> bool:
    """Whether a training is to end here.

    Args:
        bad_before: updates without finite numbers just before this one.
    """
    too_small = 0 < result.scale < SMALLEST_SCALE
    return too_small or (result.is_bad and bad_before + 1 >= PATIENCE)


class Findings(NamedTuple):
    """What a look at the model says after an update that went wrong.

    Attributes:
        where: the place at which numbers stop being finite, in words.
        table: the worst layers.
    """

    where: str
    table: str


def examine(
    model: Transformer, again: Callable[[], None], crew: Crew, *, sharded: bool
) -> Findings:
    """Look at the gradients that an update left, and at its forward pass once more.

    All processes must call this.

    Args:
        again: computes the loss of this process's batches once more, forward only.
        sharded: whether each process has a part of the gradients.
    """
    layers = _layers(model, crew, sharded=sharded)
    return Findings(_first_forward(model, again, crew) or _first_backward(layers), _table(layers))


def diverged(
    update: int,
    result: UpdateResult,
    found: Findings,
    *,
    recipe: Recipe,
    history: History,
    saved: str,
) -> DivergenceError:
    """What is wrong after `update`, and what to try.

    Args:
        saved: name of the newest checkpoint; empty if there is none.
    """
    if result.scale:
        what = f"fp16's loss scale fell to {result.scale:.1e}"
    else:
        loss = result.loss / max(result.target_tokens, 1)
        what = (
            f"loss {loss:.3f} per token, gradient norm {result.gradient_norm:.3g}, not finite "
            f"{PATIENCE} times in a row"
        )
    kept = f"{saved} is whole, and training goes on from there" if saved else "nothing is saved yet"
    first, *others = hints(recipe)
    report = [str(history), found.table, "what may help, most promising first:"]
    report += [f"{number}. {hint}" for number, hint in enumerate([first, *others], start=1)]
    return DivergenceError(
        f"training diverged at update {update}: {what}; {found.where}; {kept}; try {first}",
        "\n".join(report),
    )


def hints(recipe: Recipe) -> list[str]:
    """What to try for a recipe, most promising first; what it has already is left out."""
    model, training = recipe.model, recipe.training
    found = []
    stacks = (model.encoder, model.decoder)
    unaided = isinstance(model.initializer, slots.Glorot)
    if unaided and any(isinstance(stack.residual, slots.PostNorm) for stack in stacks):
        found.append(
            "a new run with model.initializer=depth_scaled, or with residual: pre_norm in both "
            "stacks, because deep post-norm models hardly train from glorot"
        )
    schedule = training.schedule
    if isinstance(schedule, Noam):
        found.append(f"training.schedule.scale={schedule.scale / 2:g}, half of what it is")
    else:
        found.append(f"--lr {schedule.lr / 2:g}, half of what it is")
    found.append(f"training.schedule.warmup_updates={2 * schedule.warmup_updates}, twice as many")
    if not training.clip_norm:
        found.append("training.clip_norm=1")
    if training.precision == "fp16":
        found.append("--precision bf16 or fp32")
    return found


class Numbers(NamedTuple):
    """What a layer's parameters are like; all that is in no layer goes by its module's name.

    Attributes:
        layer: its name in the model.
        gradient_norm: of the gradients that are finite.
        bad: share of the gradients that are not.
        weight_norm: of the weights that are finite.
        bad_weights: how many are not.
    """

    layer: str
    gradient_norm: float
    bad: float
    weight_norm: float
    bad_weights: int


def _layers(model: Transformer, crew: Crew, *, sharded: bool) -> list[Numbers]:
    """Every layer, in the order of the model's parameters."""
    rows = {
        name: _sums(local(one.grad), local(one.detach()))
        for name, one in model.named_parameters()
        if one.grad is not None
    }
    sums = torch.stack(list(rows.values()))
    if sharded:
        crew.add([sums])
    layers: dict[str, Tensor] = {}
    for name, row in zip(rows, sums, strict=True):
        found = re.match(r"(?:en|de)coder\.layers\.\d+", name)
        layer = found.group() if found else name.rpartition(".")[0]
        layers[layer] = layers.get(layer, 0) + row
    return [
        Numbers(layer, square**0.5, bad / count, weights**0.5, int(bad_weights))
        for layer, row in layers.items()
        for square, bad, count, weights, bad_weights in [row.tolist()]
    ]


def _sums(gradient: Tensor, weights: Tensor) -> Tensor:
    """Squares of what is finite and numbers that are not, of both, and how many there are."""
    found = []
    for one in (gradient, weights):
        bad = ~one.isfinite()
        found += [one.double().masked_fill(bad, 0.0).square().sum(), bad.sum().double()]
    square, bad, weight_square, bad_weights = found
    return torch.stack((square, bad, bad.new_tensor(gradient.numel()), weight_square, bad_weights))


def _first_forward(model: Transformer, again: Callable[[], None], crew: Crew) -> str:
    """The first sublayer whose output is not finite; empty if all are."""
    parts = list(_parts(model))
    counts = torch.zeros(len(parts), device=model.output.weight.device)
    with ExitStack() as hooks, torch.no_grad():
        for place, (_, module) in enumerate(parts):
            hooks.enter_context(_noted(module, counts, place))
        again()
    crew.add([counts])
    bad = [name for (name, _), count in zip(parts, counts.tolist(), strict=True) if count]
    return f"going forward, {bad[0]} is the first whose output is not finite" if bad else ""


def _parts(model: Transformer) -> Iterator[tuple[str, nn.Module]]:
    """What is looked at, with names, in the order of computation."""
    for side, embedding in (("encoder", "source_embedding"), ("decoder", "target_embedding")):
        yield embedding, getattr(model, embedding)
        stack = getattr(model, side)
        for number, layer in enumerate(stack):
            for place, wrapper in enumerate(layer):
                kind = type(wrapper.sublayer).__name__
                yield f"{side}.layers.{number}.sublayers.{place} ({kind})", wrapper
        yield f"{side}.norm", stack.norm


@contextmanager
def _noted(module: nn.Module, counts: Tensor, place: int) -> Iterator[None]:
    """While this lasts, count at `place` the outputs of `module` that are not finite."""

    def note(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
        counts[place] += (~output.isfinite()).any()

    handle = module.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()


def _first_backward(layers: list[Numbers]) -> str:
    """Where gradients stop being finite on the way back, or what else is wrong."""
    weights = [one.layer for one in layers if one.bad_weights]
    if weights:
        return f"weights of {weights[0]} are not finite"
    bad = [one.layer for one in layers if one.bad]
    if bad:
        return f"forward all is finite, but {len(bad)} layers have gradients that are not: {bad[0]}"
    return "gradients are finite, but too large for their squares"


def _table(layers: list[Numbers]) -> str:
    """The worst layers."""
    worst = sorted(layers, key=lambda one: (-one.bad, -one.gradient_norm))[:WORST]
    columns = dict.fromkeys(("gradient norm", "not finite", "weight norm"), "right")
    rows = [
        (one.layer, f"{one.gradient_norm:.3g}", percent(one.bad), f"{one.weight_norm:.3g}")
        for one in worst
    ]
    return "\n".join(as_lines(table({"layer": "left"} | columns, rows)))
