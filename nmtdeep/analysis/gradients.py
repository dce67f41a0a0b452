"""Gradient norm of every layer, the curves of Figure 1 of Zhang et al. 2019."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from nmtdeep.analysis.file import replacing
from nmtdeep.analysis.probe import Conditions, Probe, conditions, prepare, squared_gradient
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.initialisation import Side
from nmtdeep.model.transformer import Layer

Of = Literal["parameters", "output"]


@dataclass(frozen=True)
class LayerGradient:
    """A point of a curve; `layer` counts from 1, `depth` is the number of layers of its side."""

    side: Side
    depth: int
    layer: int
    gradient_norm: float


@dataclass(frozen=True)
class Point:
    """A row of the CSV."""

    recipe: str
    initialiser: str
    side: Side
    depth: int
    layer: int
    gradient_norm: float


class Curves(NamedTuple):
    """Both curves of one model, and what they depend on."""

    points: list[Point]
    conditions: Conditions


def layer_gradients(probe: Probe, of: Of = "parameters") -> list[LayerGradient]:
    """2-norms of the gradient of the loss per target token, one for each layer, encoder first.

    The paper does not say with respect to what Figure 1 takes the gradient. It tells "gradient"
    from "error signal" (footnote 2: the former depends on the error signal and on the activations;
    section 5: where error signals are alike, the gradients are larger in lower layers, as these
    have larger activations), so it is that of the layer's parameters, all of them as one vector.
    The error signal at the layer's output, over all real positions, is the alternative.

    Args:
        probe: its gradients are overwritten.
        of: with respect to what.
    """
    layers = [
        (side, len(stack.layers), number, layer)
        for side, stack in probe.stacks()
        for number, layer in enumerate(stack, start=1)
    ]
    squares = dict.fromkeys((layer for *_, layer in layers), 0.0)
    for seen, real in probe.passes(squares):
        for side, _, _, layer in layers:
            squares[layer] += squared_gradient(seen[layer].gave, real[side])
    if of == "parameters":
        squares = {layer: _squared_parameters(layer) for layer in squares}
    return [
        LayerGradient(side, depth, number, math.sqrt(squares[layer]))
        for side, depth, number, layer in layers
    ]


def curves(
    name: str, recipe: Recipe, data: DataDirectory, *, tokens: int, device: torch.device, of: Of
) -> Curves:
    """Measure the model of one recipe at its start; see `layer_gradients` and `prepare`."""
    probe = prepare(recipe, data, tokens=tokens, device=device)
    made = conditions(name, recipe, data, probe, 0)
    found = layer_gradients(probe, of)
    return Curves([Point(name, made.initialiser, **asdict(one)) for one in found], made)


def _squared_parameters(layer: Layer) -> float:
    """Squared 2-norm of the gradients of all parameters of a layer."""
    found = [one.grad for one in layer.parameters() if one.grad is not None]
    return float(torch.nn.utils.get_total_norm(found)) ** 2


def write_csv(points: Iterable[Point], path: Path) -> None:
    """One row a point, with a header."""
    with replacing(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(Point))
        writer.writerows((*astuple(point)[:-1], f"{point.gradient_norm:.6g}") for point in points)
