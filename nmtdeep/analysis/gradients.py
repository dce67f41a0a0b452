"""Gradient norm of every layer, the curves of Figure 1 of Zhang et al. 2019."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

import torch
from rich.table import Table

from nmtdeep.analysis import panels
from nmtdeep.analysis.findings import Findings
from nmtdeep.analysis.panels import Curve, Picture
from nmtdeep.analysis.probe import (
    Conditions,
    Probe,
    conditions,
    prepare,
    squared_gradient,
    trained,
)
from nmtdeep.analysis.subject import called
from nmtdeep.checkpoint import Loaded
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.model.initialization import Side
from nmtdeep.model.transformer import Layer
from nmtdeep.tables import table

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
    """A row of the CSV.

    Attributes:
        recipe: or the run, or the checkpoint.
        update: updates done; None for an average of checkpoints.
    """

    recipe: str
    initializer: str
    update: int | None
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
    return Curves(_points(name, made, found), made)


def trained_curves(
    name: str, loaded: Loaded, data: DataDirectory, *, tokens: int, device: torch.device, of: Of
) -> Curves:
    """Measure a checkpoint on the sentences that its recipe's start would be measured on."""
    probe = trained(loaded, data, tokens=tokens, device=device)
    updates = loaded.state.get("update")
    made = conditions(called(name, loaded), loaded.recipe, data, probe, updates)
    return Curves(_points(name, made, layer_gradients(probe, of)), made)


def gathered(measured: Sequence[Curves], *, over: bool) -> Findings:
    """All that was measured; of several models the table has some layers, of one it has all.

    Args:
        over: whether the points of a model stand for its updates, not for its layers alone.
    """
    points = [point for one in measured for point in one.points]
    made = {"models": [asdict(one.conditions) for one in measured]}
    draw = over_updates if over else by_layer
    tables = [_layers(points)]
    if len(measured) > 1:
        names = dict.fromkeys(point.recipe for point in points)
        groups = {name: [one for one in measured if one.points[0].recipe == name] for name in names}
        tables = [_summary(name, group) for name, group in groups.items()]
    return Findings(points, tables, lambda: draw(points), made, _signature(measured))


def _layers(points: Sequence[Point]) -> Table:
    """A row for each layer."""
    norms = {(point.side, point.layer): f"{point.gradient_norm:.3g}" for point in points}
    rows = (
        (layer, norms.get(("encoder", layer)), norms.get(("decoder", layer)))
        for layer in range(1, max(point.layer for point in points) + 1)
    )
    return table(dict.fromkeys(("layer", "encoder", "decoder"), "right"), rows)


def _summary(name: str, measured: Iterable[Curves]) -> Table:
    """A row for each side of each model of one name: three layers of it."""
    columns = {"layers": "right", "update": "right", "side": "left"}
    columns |= dict.fromkeys(("first", "middle", "top", "first/top"), "right")
    rows = []
    for one in measured:
        for side in dict.fromkeys(point.side for point in one.points):
            own = [point for point in one.points if point.side == side]
            norms = [own[place].gradient_norm for place in (0, (len(own) - 1) // 2, -1)]
            figures = [*norms, norms[0] / norms[-1] if norms[-1] else math.inf]
            update = None if own[0].update is None else f"{own[0].update:,}"
            rows.append((own[0].depth, update, side, *(f"{figure:.3g}" for figure in figures)))
    return table(columns, rows, title=name)


def _signature(measured: Sequence[Curves]) -> str:
    """A line for each way of measuring, with the models that were measured so."""
    found: dict[str, list[str]] = {}
    for one in measured:
        models = found.setdefault(one.conditions.how, [])
        model = f"{one.points[0].recipe}, {one.conditions.initializer}"
        models += [model] if model not in models else []
    if len(measured) == 1:
        return str(measured[0].conditions)
    return "\n".join(f"{'; '.join(models)}: {how}" for how, models in found.items())


def _points(name: str, made: Conditions, found: Iterable[LayerGradient]) -> list[Point]:
    return [Point(name, made.initializer, made.updates, **asdict(one)) for one in found]


def _squared_parameters(layer: Layer) -> float:
    """Squared 2-norm of the gradients of all parameters of a layer."""
    found = [one.grad for one in layer.parameters() if one.grad is not None]
    return float(torch.nn.utils.get_total_norm(found)) ** 2


def by_layer(points: Sequence[Point]) -> Picture:
    """Encoder above, decoder below; a line style a model, a marker a depth."""
    names = _lines(points)
    curves: dict[Side, list[Curve]] = {"encoder": [], "decoder": []}
    for key in dict.fromkeys((one.recipe, one.update, one.depth, one.side) for one in points):
        curve = [p for p in points if (p.recipe, p.update, p.depth, p.side) == key]
        norms = [point.gradient_norm for point in curve]
        layers = [point.layer for point in curve]
        curves[key[-1]].append(Curve(layers, norms, names[key[0]], f"{key[2]} layers"))
    return _picture(curves, "layer")


def over_updates(points: Sequence[Point]) -> Picture:
    """First and top layer of each model over its updates, as in Figure 4 of Zhang et al. 2019."""
    curves: dict[Side, list[Curve]] = {"encoder": [], "decoder": []}
    for name, side in dict.fromkeys((point.recipe, point.side) for point in points):
        own = [point for point in points if (point.recipe, point.side) == (name, side)]
        ends = {
            "first layer": [point for point in own if point.layer == 1],
            "top layer": [point for point in own if point.layer == point.depth],
        }
        for which, found in ends.items():
            norms = [point.gradient_norm for point in found]
            updates = [point.update or 0 for point in found]
            curves[side].append(Curve(updates, norms, name, which))
    return _picture(curves, "update")


def _picture(curves: Mapping[Side, Sequence[Curve]], x_label: str) -> Picture:
    return Picture(
        [
            panels.Curves(found, x_label, f"gradient norm, {side}", log=True)
            for side, found in curves.items()
        ]
    )


def _lines(points: Sequence[Point]) -> dict[str, str]:
    """What the models are called: by their initializers where these tell them apart."""
    kinds = {point.recipe: point.initializer.split()[0] for point in points}
    return kinds if len(set(kinds.values())) == len(kinds) else {name: name for name in kinds}
