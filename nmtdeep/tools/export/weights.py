"""The weights of a model as other programs have them: norms, attention, feed-forward maps.

What they have no parameter for is merged into weights, with the same result: a vector added to
every embedding into the positions, a weight of a residual into the norm before it. The released v1
form (`residual: normalized`) is post-norm behind a norm of the embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.config.model import Model
from nmtdeep.config.variant import packages_of
from nmtdeep.errors import Problem
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.embedding import TokenEmbedding
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.norm import Norm
from nmtdeep.model.layers.positions import Sinusoidal, sinusoids
from nmtdeep.model.layers.residual import Admin, DeepNorm, NormalizedResidual, Normed, PreNorm
from nmtdeep.model.layers.sublayer import Sublayer
from nmtdeep.model.transformer import Stack, Transformer

RESIDUALS = ("post_norm", "pre_norm", "normalized", "admin", "deep_norm")
# The values of the section `model` that other programs compute, and their sublayers.
VALUES: dict[str, tuple[object, ...]] = {
    "encoder.combination": ("residual",),
    "decoder.combination": ("residual",),
    "encoder.residual": RESIDUALS,
    "decoder.residual": RESIDUALS,
    "bridge": ("top_layer",),
    "norm": ("layer_norm",),
    "qk_norm": ("none",),
    "activation": ("relu", "gelu", "swish"),
    "embeddings.start": ("eos", "pad"),
}
SUBLAYERS = {
    "encoder": ["self_attention", "feed_forward"],
    "decoder": ["self_attention", "cross_attention", "feed_forward"],
}


class Affine(NamedTuple):
    """x W^T + b; the weight is `(outputs, inputs)`."""

    weight: Tensor
    bias: Tensor | None


class NormWeights(NamedTuple):
    """Weight and bias of a layer norm, `(width,)` each."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class SublayerWeights:
    """Weights of a sublayer.

    Attributes:
        maps: query, key, value and output of an attention, or inner and outer of a feed-forward
            network; the output of the last one is added to the sublayer's input.
        inputs: names of the maps that read this input.
        norm: before the sublayer or after the sum.
        relative: vectors of keys and perhaps of values, `(2 clip + 1, d_h)` each.
    """

    maps: dict[str, Affine]
    inputs: tuple[str, ...]
    norm: NormWeights | None = None
    relative: tuple[Tensor, Tensor | None] | None = None


@dataclass(frozen=True)
class StackWeights:
    """s E[ids] + positions, a norm of it, then layers of sublayers, then a norm on top.

    Attributes:
        table: E, `(types, width)`.
        scaled: whether s is sqrt(d), or 1.
        positions: `(rows, width)`, or None.
        pre_norm: whether the norms of sublayers are before them, or after the sum.
    """

    table: Tensor
    scaled: bool
    positions: Tensor | None
    embedding_norm: NormWeights | None
    layers: list[list[SublayerWeights]]
    top_norm: NormWeights | None
    pre_norm: bool
    heads: int


class ModelWeights(NamedTuple):
    """Weights of a whole model; `output` is the map to logits, with a `(types, width)` matrix."""

    encoder: StackWeights
    decoder: StackWeights
    output: Affine


def unsupported(model: Model) -> list[Problem]:
    """Everything in a recipe's section `model` that has no such form."""
    problems = list(other_values(model, VALUES, SUBLAYERS))
    if "+" in model.widths:
        what = f"encoder and decoder are {model.widths} wide"
        problems.append(Problem(what, "model.encoder.width", "train with one width"))
    return problems


def other_values(
    model: Model, values: Mapping[str, Sequence[object]], sublayers: Mapping[str, list[str]]
) -> Iterator[Problem]:
    """Each key of a section `model` that has none of its `values`, and what to change."""
    for variant, package in packages_of(model).items():
        what = f"{variant} is a variant of another package ({package})"
        yield Problem(what, "model", "leave it out")
    for key, allowed in values.items():
        value = attrgetter(key)(model)
        if (found := getattr(value, "type", value)) not in allowed:
            listed = " or ".join(json.dumps(each).strip('"') for each in allowed)
            yield Problem(str(found), f"model.{key}", f"set it to {listed}")
    for side, expected in sublayers.items():
        types = [sublayer.type for sublayer in getattr(model, side).sublayers]
        if types != expected:
            hint = f"set it to [{', '.join(expected)}]"
            yield Problem(f"[{', '.join(types)}]", f"model.{side}.sublayers", hint)


def of_model(transformer: Transformer, model: Model, *, rows: int) -> ModelWeights:
    """Weights that compute the same function, in fp32 on the CPU.

    Args:
        model: the section `model` of its recipe, which has to be supported.
        rows: number of positions.
    """
    return ModelWeights(
        _stack(transformer.encoder, transformer.source_embedding, model.encoder.heads, rows),
        _stack(transformer.decoder, transformer.target_embedding, model.decoder.heads, rows),
        _maps(transformer.output, "output")["output"],
    )


def _value(parameter: Tensor) -> Tensor:
    return parameter.detach().float().cpu()


def _stack(stack: Stack, embedding: TokenEmbedding, heads: int, rows: int) -> StackWeights:
    residuals = [residual for layer in stack for residual in layer if isinstance(residual, Normed)]
    table, positions = _embedding(embedding, rows)
    norms: list[NormWeights | None] = [_norm(residual.norm) for residual in residuals]
    top = _norm(stack.norm) if isinstance(stack.norm, nn.LayerNorm) else None
    embedding_norm = None
    if isinstance(residuals[0], NormalizedResidual):
        # The norm before each sublayer is the one after the sum below it.
        embedding_norm, *norms = [*norms, top]
        top = None
    sublayers = [
        replace(_sublayer(residual.sublayer), norm=norm)
        for residual, norm in zip(residuals, norms, strict=True)
    ]
    omegas = [_value(residual.omega) for residual in residuals if isinstance(residual, Admin)]
    alphas = [residual.alpha for residual in residuals if isinstance(residual, DeepNorm)]
    if scales := omegas or list(map(torch.tensor, alphas)):  # of the input in each sum
        sublayers = _absorb(sublayers, scales)
        table = table * scales[0]
        positions = None if positions is None else positions * scales[0]
    count = len(sublayers) // len(stack.layers)
    layers = [sublayers[first : first + count] for first in range(0, len(sublayers), count)]
    pre_norm = isinstance(residuals[0], PreNorm)
    scaled = embedding.scale != 1
    return StackWeights(table, scaled, positions, embedding_norm, layers, top, pre_norm, heads)


def _embedding(embedding: TokenEmbedding, rows: int) -> tuple[Tensor, Tensor | None]:
    """Table and positions, which include the vector that is added to every embedding."""
    table = _value(embedding.weight)
    positions = None
    if isinstance(embedding.positions, Sinusoidal):
        first, rates = embedding.positions.first, embedding.positions.rates
        positions = sinusoids(first, rows, table.shape[1], rates).float()
    if embedding.bias is None:
        return table, positions
    bias = _value(embedding.bias)
    if positions is None:
        return table + bias / embedding.scale, None
    return table, positions + bias


def _absorb(sublayers: Sequence[SublayerWeights], scales: list[Tensor]) -> list[SublayerWeights]:
    """norm(s x + f(x)) as norm(x' + f'(x')), x' = s x.

    The norm below returns x' instead of x, and the maps that read it divide by the factor.
    """
    above = [*scales[1:], torch.ones(())]
    return [
        replace(
            sublayer,
            maps={
                name: Affine(part.weight / scale, part.bias) if name in sublayer.inputs else part
                for name, part in sublayer.maps.items()
            },
            norm=sublayer.norm
            and NormWeights(sublayer.norm.weight * after, sublayer.norm.bias * after),
        )
        for sublayer, scale, after in zip(sublayers, scales, above, strict=True)
    ]


def _sublayer(sublayer: Sublayer) -> SublayerWeights:
    relative = None
    match sublayer:
        case FeedForward():
            maps = _maps(sublayer.inner, "inner") | _maps(sublayer.outer, "outer")
            return SublayerWeights(maps, ("inner",))
        case SelfAttention():
            inputs: tuple[str, ...] = ("query", "key", "value")
            maps = _maps(sublayer.qkv, *inputs)
            if (tables := sublayer.relative) is not None:
                values = None if tables.values is None else _value(tables.values)
                relative = (_value(tables.keys), values)
        case CrossAttention():
            inputs = ("query",)
            maps = _maps(sublayer.query, "query") | _maps(sublayer.key_value, "key", "value")
        case _:
            raise ValueError(f"{type(sublayer).__name__} is not supported")
    return SublayerWeights(maps | _maps(sublayer.output, "output"), inputs, relative=relative)


def _maps(linear: nn.Linear, *names: str) -> dict[str, Affine]:
    """A linear map, or those that are packed into it, by name."""
    weights = _value(linear.weight).chunk(len(names))
    biases: Sequence[Tensor | None] = [None] * len(names)
    if linear.bias is not None:
        biases = _value(linear.bias).chunk(len(names))
    return {name: Affine(*parts) for name, *parts in zip(names, weights, biases, strict=True)}


def _norm(norm: Norm) -> NormWeights:
    assert isinstance(norm, nn.LayerNorm)
    return NormWeights(_value(norm.weight), _value(norm.bias))
