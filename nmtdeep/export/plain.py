"""A model in words that other programs have: norms, attention and feed-forward maps in a row.

What they have no word for is put into weights where the same numbers come out: a vector added to
every embedding goes into the positions, a weight of a residual into the norm before it. The
released v1 form (`residual: normalized`) is post-norm behind a norm of the embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.config.model import Model
from nmtdeep.errors import UserError
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.context import Sublayer
from nmtdeep.model.layers.embedding import TokenEmbedding
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.positions import Sinusoidal, sinusoids
from nmtdeep.model.layers.residual import (
    Admin,
    DeepNorm,
    NormalizedResidual,
    Normed,
    PreNorm,
)
from nmtdeep.model.transformer import Stack, Transformer

SUBLAYERS = ["self_attention", "cross_attention", "feed_forward"]


class Map(NamedTuple):
    """x W^T + b; the weight is `(outputs, inputs)`."""

    weight: Tensor
    bias: Tensor | None


class Norm(NamedTuple):
    """Weight and bias of a layer norm, `(width,)` each."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Part:
    """A sublayer.

    Attributes:
        maps: query, key, value and output of an attention, or inner and outer of a feed-forward
            map; what the last one gives is added to the sublayer's input.
        reads: those of them that read this input.
        norm: before the sublayer or after the sum.
        relative: vectors of keys and perhaps of values, `(2 clip + 1, d_h)` each.
    """

    maps: dict[str, Map]
    reads: tuple[str, ...]
    norm: Norm | None = None
    relative: tuple[Tensor, Tensor | None] | None = None


@dataclass(frozen=True)
class PlainStack:
    """sqrt(d) E[ids] + positions, its norm, then layers of parts, then a norm on top.

    Attributes:
        table: E, `(types, width)`.
        positions: `(rows, width)`, or None.
        place: where the parts' norms stand: before a sublayer, or after the sum.
    """

    table: Tensor
    positions: Tensor | None
    embedding_norm: Norm | None
    layers: list[list[Part]]
    top_norm: Norm | None
    place: Literal["before", "after"]
    heads: int


@dataclass(frozen=True)
class Plain:
    """A whole model; `output` `(types, width)` gives logits."""

    encoder: PlainStack
    decoder: PlainStack
    output: Tensor
    epsilon: float


def obstacles(model: Model) -> list[str]:
    """What of a recipe's section `model` cannot be said this way, each with its key."""
    found = [
        f"model.{name}.combination: {stack.combination.type}: a layer reads more than the output "
        "of the layer below it"
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack.combination.type != "residual"
    ]
    found += [
        f"model.{name}.residual: {stack.residual.type}: layers have no norms"
        for name, stack in (("encoder", model.encoder), ("decoder", model.decoder))
        if stack.residual.type in ("rezero", "no_norm")
    ]
    sublayers = [part.type for part in model.decoder.sublayers]
    if sublayers != SUBLAYERS:
        found.append(
            f"model.decoder.sublayers: [{', '.join(sublayers)}]: only [{', '.join(SUBLAYERS)}] is "
            "known, in this order"
        )
    if model.bridge.type != "top_layer":
        found.append(
            f"model.bridge: {model.bridge.type}: all decoder layers attend to the encoder's top"
        )
    return found


def plain(transformer: Transformer, model: Model, *, rows: int) -> Plain:
    """The same function, in fp32 on the CPU.

    Args:
        model: the section `model` of its recipe, without `obstacles`.
        rows: how many positions are written out.

    Raises:
        UserError: if a learned weight of a residual is 0, which no other weight can stand for.
    """
    return Plain(
        _stack(transformer.encoder, transformer.source_embedding, model.encoder.heads, rows),
        _stack(transformer.decoder, transformer.target_embedding, model.decoder.heads, rows),
        _value(transformer.output.weight),
        model.norm_epsilon,
    )


def _value(parameter: Tensor) -> Tensor:
    return parameter.detach().float().cpu()


def _stack(stack: Stack, embedding: TokenEmbedding, heads: int, rows: int) -> PlainStack:
    wrappers = [one for layer in stack for one in layer if isinstance(one, Normed)]
    table, positions = _embedded(embedding, rows)
    norms: list[Norm | None] = [_norm(one.norm) for one in wrappers]
    top = _norm(stack.norm) if isinstance(stack.norm, nn.LayerNorm) else None
    embedding_norm = None
    if isinstance(wrappers[0], NormalizedResidual):
        # Each norm moves one place down: those before a sublayer stand after the sum below it.
        embedding_norm, *norms = [*norms, top]
        top = None
    parts = [
        replace(_part(one.sublayer), norm=norm) for one, norm in zip(wrappers, norms, strict=True)
    ]
    if scales := _scales(wrappers):
        parts = _absorb(parts, scales)
        table = table * scales[0]
        positions = None if positions is None else positions * scales[0]
    count = len(wrappers) // len(stack.layers)
    layers = [parts[first : first + count] for first in range(0, len(parts), count)]
    place: Literal["before", "after"] = "before" if isinstance(wrappers[0], PreNorm) else "after"
    return PlainStack(table, positions, embedding_norm, layers, top, place, heads)


def _embedded(embedding: TokenEmbedding, rows: int) -> tuple[Tensor, Tensor | None]:
    """Table and positions, which take in the vector that is added to every embedding."""
    table = _value(embedding.weight)
    positions = None
    if isinstance(embedding.positions, Sinusoidal):
        positions = sinusoids(embedding.positions.first, rows, table.shape[1]).float()
    if embedding.bias is None:
        return table, positions
    bias = _value(embedding.bias)
    if positions is None:
        return table + bias / embedding.scale, None
    return table, positions + bias


def _scales(wrappers: Sequence[Normed]) -> list[Tensor]:
    """What each residual is multiplied by; empty where that is 1."""
    scales = []
    for one in wrappers:
        if isinstance(one, Admin):
            scales.append(_value(one.omega))
        elif isinstance(one, DeepNorm):
            scales.append(torch.tensor(one.alpha))
    if any(bool((scale == 0).any()) for scale in scales):
        raise UserError(
            "a learned weight of a residual (omega) is exactly 0, so that no norm can stand for "
            "it: export another checkpoint of the run"
        )
    return scales


def _absorb(parts: Sequence[Part], scales: Sequence[Tensor]) -> list[Part]:
    """norm(s x + f(x)) as norm(x' + f'(x')), x' = s x.

    The norm below gives x' in the place of x, and the maps that read it undo the factor.
    """
    above = [*scales[1:], torch.ones(())]
    return [
        replace(
            part,
            maps={
                name: Map(one.weight / scale, one.bias) if name in part.reads else one
                for name, one in part.maps.items()
            },
            norm=part.norm and Norm(part.norm.weight * after, part.norm.bias * after),
        )
        for part, scale, after in zip(parts, scales, above, strict=True)
    ]


def _part(sublayer: Sublayer) -> Part:
    match sublayer:
        case SelfAttention():
            query, key, value = _maps(sublayer.qkv, 3)
            relative = None
            if (tables := sublayer.relative) is not None:
                values = None if tables.values is None else _value(tables.values)
                relative = (_value(tables.keys), values)
            (output,) = _maps(sublayer.output)
            maps = {"query": query, "key": key, "value": value, "output": output}
            return Part(maps, ("query", "key", "value"), relative=relative)
        case CrossAttention():
            (query,), (key, value) = _maps(sublayer.query), _maps(sublayer.key_value, 2)
            (output,) = _maps(sublayer.output)
            maps = {"query": query, "key": key, "value": value, "output": output}
            return Part(maps, ("query",))
        case FeedForward():
            (inner,), (outer,) = _maps(sublayer.inner), _maps(sublayer.outer)
            return Part({"inner": inner, "outer": outer}, ("inner",))
        case _:
            raise ValueError(f"{type(sublayer).__name__} is no plain sublayer")


def _maps(linear: nn.Linear, parts: int = 1) -> list[Map]:
    """A linear map, or those that are packed into it."""
    weights = _value(linear.weight).chunk(parts)
    biases: Sequence[Tensor | None] = [None] * parts
    if linear.bias is not None:
        biases = _value(linear.bias).chunk(parts)
    return [Map(*one) for one in zip(weights, biases, strict=True)]


def _norm(norm: nn.LayerNorm) -> Norm:
    return Norm(_value(norm.weight), _value(norm.bias))
