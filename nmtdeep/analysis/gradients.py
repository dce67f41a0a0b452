"""Gradient norm of every layer, the curves of Figures 1 and 4 of Zhang et al. 2019."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from nmtdeep import checkpoint, files
from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, grouped, versions
from nmtdeep.analysis.probe import Probe, prepare, squared_gradient
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.initialization import Side
from nmtdeep.tables import table
from nmtdeep.units import counted

Of = Literal["parameters", "output"]
SIDES: tuple[Side, Side] = ("encoder", "decoder")
COLUMNS = ("side", "layers", "update", "first", "middle", "top", "first/top")


class LayerGradient(NamedTuple):
    """The gradient norm of one of `depth` layers, from 1; an average has no `update`."""

    model: str
    update: int | None
    side: Side
    depth: int
    layer: int
    gradient_norm: float


def measure(
    subjects: Iterable[tuple[str, Recipe | Path]],
    data: DataDirectory,
    *,
    tokens: int,
    device: torch.device,
    of: Of = "parameters",
    most: int | None = None,
    say: Callable[[str], object] = lambda line: None,
) -> Measurement:
    """Gradient norms of recipes at their start, of checkpoints, or of runs over their updates.

    All are measured in training mode, fp32 and with the dropout of the first update; models of one
    seed are measured on the same sentences.

    Args:
        subjects: models by name; a name may occur with several recipes.
        most: number of checkpoints of a run to measure, at even distances; None measures all.
        say: called with a line for each measured model.
    """
    rows: list[LayerGradient] = []
    conditions: dict[str, Any] = {}
    for name, subject in subjects:
        for model in [subject] if isinstance(subject, Recipe) else _over_training(subject, most):
            probe = prepare(model, data, tokens=tokens, device=device)
            rows += layer_gradients(name, probe, of)
            conditions[name] = probe.conditions()
            at = "" if probe.update is None else f", update {probe.update:,}"
            say(f"measured {name}{at}, {counted(len(probe.model.encoder.layers), 'layer')}")
    text = {"of": of, "numbers": "fp32", "text": data.fingerprint[:16]}
    tables = [
        table(COLUMNS, map(_summary, grouped(own, "depth", "update", "side").values()), title=name)
        for name, own in grouped(rows, "model").items()
    ]
    return Measurement(rows, {**conditions, **text, **versions()}, tables, partial(draw, rows))


def draw(rows: Sequence[LayerGradient], figure: pictures.Figure) -> None:
    """Every layer (Figure 1 of Zhang et al. 2019), or two layers over the updates (Figure 4)."""
    models, curves = grouped(rows, "model"), {}
    over_updates = len(grouped(rows, "model", "update")) > len(models)
    if over_updates:
        for name, own in models.items():
            curves[f"{name}, first layer"] = [row for row in own if row.layer == 1]
            curves[f"{name}, top layer"] = [row for row in own if row.layer == row.depth]
    else:
        for (name, depth), own in grouped(rows, "model", "depth").items():
            curves[f"{name}, {depth} layers"] = own
    over = [
        pictures.Panel(f"gradient norm, {side}", "gradient_norm", {"side": side}, "log")
        for side in SIDES
    ]
    pictures.plot(figure, curves, over=over, x="update" if over_updates else "layer")


def layer_gradients(name: str, probe: Probe, of: Of = "parameters") -> list[LayerGradient]:
    """2-norms of the gradient of the loss per target token, one for each layer, encoder first.

    The paper does not say with respect to what Figure 1 takes the gradient. It distinguishes
    "gradient" from "error signal" (footnote 2: the former depends on the error signal and on the
    activations; section 5: where error signals are alike, the gradients are larger in lower layers,
    as these have larger activations), so it is that of the layer's parameters, all of them as one
    vector. The error signal at the layer's output, over all real positions, is the alternative.
    """
    sides = {layer: side for side, stack in probe.stacks() for layer in stack}
    squares = dict.fromkeys(sides, 0.0)
    for passages, real in probe.passes(sides):
        for layer, side in sides.items():
            squares[layer] += squared_gradient(passages[layer].output, real[side])
    if of == "parameters":
        for layer in squares:
            parts = [weight.grad for weight in layer.parameters() if weight.grad is not None]
            squares[layer] = float(torch.nn.utils.get_total_norm(parts)) ** 2
    return [
        LayerGradient(
            name, probe.update, side, len(stack.layers), number, math.sqrt(squares[layer])
        )
        for side, stack in probe.stacks()
        for number, layer in enumerate(stack, start=1)
    ]


def _over_training(path: Path, most: int | None) -> Iterator[Recipe | Loaded]:
    """A checkpoint; or the start of a run, unless it was grown, and its checkpoints."""
    if (path / checkpoint.STATE).is_file() or not checkpoint.saved(path):
        yield checkpoint.load(checkpoint.locate(path))
        return
    saved = list(checkpoint.saved(path).values())
    files.check_entries(path, saved)
    recipe = read_config(path / checkpoint.CONFIG)
    if recipe.training.stages or not checkpoint.read_state(saved[0]).get("stage_update"):
        yield recipe.at_stage(0)
    if most is not None and len(saved) > most:
        saved = [saved[len(saved) * place // most - 1] for place in range(1, most + 1)]
    yield from map(checkpoint.load, saved)


def _summary(stack: Sequence[LayerGradient]) -> tuple[object, ...]:
    row, norms = stack[0], [row.gradient_norm for row in stack]
    first, top = norms[0], norms[-1]
    figures = (first, norms[(len(norms) - 1) // 2], top, first / top if top else math.inf)
    update = None if row.update is None else f"{row.update:,}"
    return row.side, row.depth, update, *(f"{figure:#.3g}".rstrip(".") for figure in figures)
