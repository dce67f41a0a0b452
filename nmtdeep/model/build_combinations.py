"""From config values to layer combinations."""

from __future__ import annotations

from typing import Any, assert_never

from nmtdeep.config import slots
from nmtdeep.config.model import Model, of_sublayers
from nmtdeep.config.model import Stack as StackConfig
from nmtdeep.errors import ConfigError
from nmtdeep.model.build_layers import layer_norm, norm_place
from nmtdeep.model.layers.attention_residuals import AttentionResiduals
from nmtdeep.model.layers.combination import Combination, LinearCombination, PlainStack, Weights
from nmtdeep.model.layers.hyper_connections import (
    HyperConnection,
    HyperConnections,
    ManifoldConnection,
)


def combination(model: Model, stack: StackConfig, *, top: bool) -> Combination:
    """The layer combination of a stack.

    Args:
        top: whether anything reads the combination above the last layer; else it ends below.
    """
    width, epsilon = model.width, model.norm_epsilon
    every = tuple(range(stack.depth + top))
    sublayers = range(stack.depth * len(stack.sublayers))
    match stack.combination:
        case slots.PlainStack():
            return PlainStack()
        case slots.Dense() | slots.DynamicLinear() as part:
            return _linear(model, stack, part, every)
        case slots.SparseBlocks() as part:
            ends = tuple(end for end in part.boundaries(stack.depth) if top or end < stack.depth)
            return _linear(model, stack, part, ends)
        case slots.DenseFormer(dilation=dilation, period=period):
            readers = [end for end in every if end and end % period == 0]
            identity = Weights(initial="newest", learnable=bool(readers), dilation=dilation)
            return LinearCombination(every, width, weights=identity, readers=readers)
        case slots.HyperConnections(streams=streams, weights=weights):
            norms = [layer_norm(model) if weights == "dynamic" else None for _ in sublayers]
            parts = [HyperConnection(k, streams, norms[k]) for k in sublayers]
            return HyperConnections(parts, streams)
        case slots.ManifoldHyperConnections(streams=streams, iterations=steps):
            settings: dict[str, Any] = {"iterations": steps, "epsilon": epsilon}
            manifold = [ManifoldConnection(k, streams, width, **settings) for k in sublayers]
            return HyperConnections(manifold, streams)
        case slots.AttentionResiduals(block=block):
            return AttentionResiduals(len(sublayers), width, block=block, epsilon=epsilon)
        case slots.CombinationVariant() as chosen:
            built: Combination = chosen.build(model, stack)
            side = "encoder" if stack is model.encoder else "decoder"
            if built.connects == "sublayers" and (conflict := of_sublayers(model, side)):
                where = f"model.{'.'.join(conflict.paths[0])}"
                raise ConfigError(conflict.what, where=where, hint=conflict.hint)
            return built
        case _ as unknown:
            assert_never(unknown)


def _linear(
    model: Model, stack: StackConfig, part: slots.Dense | slots.Learned, boundaries: tuple[int, ...]
) -> LinearCombination:
    if isinstance(part, slots.Dense):
        weights, dropout = Weights(initial=part.weight, learnable=False), 0.0
    else:
        groups = {"scalar": 1, "vector": model.width, "scalar_n": part.groups or 1}[part.weights]
        weights = Weights(groups, part.initial, part.learnable, part.softmax, part.window)
        dropout = part.dropout
    place = norm_place(stack.residual)
    count = {"layers": len(boundaries) - 1, "all": len(boundaries), "none": 0}[part.norm]
    return LinearCombination(
        boundaries,
        model.width,
        weights=weights,
        norms=[layer_norm(model) for _ in range(count)],
        place="after" if place == "after" else "before",
        dropout=dropout,
    )
