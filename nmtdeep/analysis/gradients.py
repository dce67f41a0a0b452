"""Gradient norm of every layer, the curves of Figures 1 and 4 of Zhang et al. 2019."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch

from nmtdeep import checkpoint, files
from nmtdeep.analysis.measurement import Column, Measurement, grouped
from nmtdeep.analysis.probe import Probe, ProbeText, prepare, squared_gradient
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.model.initialization import Side
from nmtdeep.units import counted

Of = Literal["parameters", "output"]
PLACE = ("model", "depth", "update", "side")


class LayerGradient(NamedTuple):
    """The gradient norm of one of `depth` layers, from 1; an average has no `update`."""

    model: Annotated[str, Column("model", role="curve")]
    update: int | None
    side: Annotated[Side, Column("side", role="panel")]
    depth: Annotated[int, Column("layers", role="curve")]
    layer: Annotated[int, Column("layer", role="x")]
    gradient_norm: Annotated[float, Column("gradient norm", role="y", log=True)]


def measure(
    subjects: Iterable[tuple[str, Recipe | Path]],
    sample: ProbeText,
    *,
    of: Of = "parameters",
    say: Callable[[str], object] = lambda line: None,
) -> Measurement:
    """Gradient norms of recipes at their start, of checkpoints, or of runs over their updates.

    All are measured in training mode, fp32 and with the dropout of the first update; models of one
    seed are measured on the same sentences.

    Args:
        subjects: models by name, which may occur with several recipes.
        say: called with a line for each measured model.
    """
    rows: list[LayerGradient] = []
    conditions: dict[str, Any] = {}
    for name, subject in subjects:
        for model in [subject] if isinstance(subject, Recipe) else _over_training(subject):
            probe = prepare(model, sample)
            rows += layer_gradients(name, probe, of)
            conditions[name] = probe.conditions()
            at = "" if probe.update is None else f", update {probe.update:,}"
            say(f"measured {name}{at}, {counted(len(probe.model.encoder.layers), 'layer')}")
    text = {"of": of, "numbers": "fp32", "text": sample.data.fingerprint[:16]}
    summary = []
    for (name, depth, update, side), layers in grouped(rows, *PLACE).items():
        norms = [row.gradient_norm for row in layers]
        ends = {"first": norms[0], "middle": norms[(depth - 1) // 2], "top": norms[-1]}
        ratio = {"first/top": norms[0] / norms[-1] if norms[-1] else math.inf}
        place = {"model": name, "side": side, "layers": depth, "update": update}
        summary.append(place | ends | ratio)
    outer = [
        row._replace(model=f"{row.model}, {place} layer", depth=0)  # one curve as the model grows
        for row in rows
        for place, layer in (("first", 1), ("top", row.depth))
        if row.layer == layer
    ]
    over_updates = len(grouped(rows, "model", "update")) > len(grouped(rows, "model"))
    return Measurement(
        "Gradient norm of the layers",
        rows,
        conditions | text,
        summary,
        form="#.3g",
        apart="model",
        drawn=outer if over_updates else rows,
        x="update" if over_updates else "layer",
    )


def layer_gradients(name: str, probe: Probe, of: Of = "parameters") -> list[LayerGradient]:
    """2-norms of the gradient of the loss per target token, one for each layer, encoder first.

    It is that of the layer's parameters as one vector, as footnote 2 and section 5 of the paper
    suggest, or that of its output over all real positions, the error signal.
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


def _over_training(path: Path) -> Iterator[Recipe | Loaded]:
    """A checkpoint; or the start of a run, unless it was grown, and its checkpoints."""
    if (path / checkpoint.STATE).is_file() or not checkpoint.saved(path):
        yield checkpoint.load_model(checkpoint.locate(path))
        return
    saved = list(checkpoint.saved(path).values())
    files.check_entries(path, saved)
    recipe = read_config(path / checkpoint.CONFIG)
    if recipe.training.stages or not checkpoint.read_state(saved[0]).get("stage_update"):
        yield recipe.at_stage(0)
    yield from map(checkpoint.load_model, saved)
