"""Growth: a deeper model from a shallower one (Li et al. 2020, section 4).

A strategy is a pure function of two depths, a map from each layer of the deeper stack to the layer
it is copied from. All strategies share one mechanism.
"""

from __future__ import annotations

import torch
from torch import nn

from nmtdeep.config.model import SIDES, Model
from nmtdeep.config.stages import GrowthStrategy, GrowthVariant
from nmtdeep.model.layers.combination import Combination
from nmtdeep.model.transformer import Stack, Transformer

LayerMap = list[int | None]


def layer_map(strategy: GrowthStrategy, old: int, new: int) -> LayerMap:
    """Source of each of `new` layers among `old` ones, None for a layer of random weights.

    With g = new - old layers to add:

    - copy_top_group: the old stack, then its g topmost layers in order (the paper's own; a group
      larger than the stack repeats it);
    - copy_top_layer: the old stack, then g copies of its topmost layer;
    - interpolate: each of the g topmost layers is followed by its copy (where g is larger than the
      stack, copies are spread evenly);
    - stack_all: the whole stack again and again;
    - random: the old stack, then g layers from the initializer.

    Raises:
        ValueError: if the stack would not grow, not by whole copies of itself for stack_all, or
            if a strategy of another package leaves out a layer.
    """
    if new < old:
        raise ValueError(f"{old} layers cannot grow to {new}")
    if new == old:
        return list(range(old))
    group = new - old
    match strategy:
        case "copy_top_group":
            repeated = min(group, old)
            added: LayerMap = [old - repeated + number % repeated for number in range(group)]
        case "copy_top_layer":
            added = [old - 1] * group
        case "random":
            added = [None] * group
        case "interpolate" if new > 2 * old:
            return [number * old // new for number in range(new)]
        case "interpolate":
            return sorted([*range(old), *range(old - group, old)])
        case "stack_all":
            if new % old:
                raise ValueError(f"stack_all repeats all {old} layers: {new} is not a multiple")
            return [number % old for number in range(new)]
        case GrowthVariant():
            sources = strategy.layer_map(old, new)
            if missing := {*range(old)} - {*sources}:
                raise ValueError(f"{strategy.type} leaves out layer {min(missing) + 1}")
            return sources
    return [*range(old), *added]


def layer_maps(strategy: GrowthStrategy, old: Model, new: Model) -> dict[str, LayerMap]:
    """The map of each stack, from the models' depths.

    Raises:
        ValueError: as `layer_map`, naming the stack.
    """
    maps = {}
    for side in SIDES:
        try:
            maps[side] = layer_map(strategy, getattr(old, side).depth, getattr(new, side).depth)
        except ValueError as error:
            raise ValueError(f"{side}: {error}") from error
    return maps


def carry_over(old: Transformer, new: Transformer, *, encoder: LayerMap, decoder: LayerMap) -> None:
    """Give the initialized `new` model all that `old` has learned.

    Embeddings, output and top norms stay; each layer comes from its source whole; combination and
    bridge `inherit`, see there. Both models differ in depth only.
    """
    with torch.no_grad():
        for part in ("source_embedding", "target_embedding", "output"):
            _copy(getattr(old, part), getattr(new, part))
        _grow_stack(old.encoder, new.encoder, encoder)
        _grow_stack(old.decoder, new.decoder, decoder)
        new.bridge.inherit(old.bridge, encoder, decoder)


def _grow_stack(old: Stack, new: Stack, sources: LayerMap) -> None:
    layers = list(old)
    for layer, source in zip(new, sources, strict=True):
        if source is not None:
            _copy(layers[source], layer)
    _copy(old.norm, new.norm)
    combination: Combination = new.combination
    combination.inherit(old.combination, sources)


def _copy(old: nn.Module, new: nn.Module) -> None:
    for theirs, ours in zip(old.parameters(), new.parameters(), strict=True):
        ours.copy_(theirs)
