"""The only place where a config value becomes a class: one `match` per slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, assert_never

import torch
from torch import nn

from nmtdeep.config import slots
from nmtdeep.config.model import Decoder, Model
from nmtdeep.config.model import Stack as StackConfig
from nmtdeep.config.section import Section
from nmtdeep.model import initialization
from nmtdeep.model.initialization import Sample
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.average_attention import AverageAttention
from nmtdeep.model.layers.bridge import Bridge, TopLayer, Transparent
from nmtdeep.model.layers.combination import Combination, LinearCombination, PlainStack, Weights
from nmtdeep.model.layers.context import Sublayer
from nmtdeep.model.layers.embedding import TokenEmbedding
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.merged_attention import Both, MergedAttention
from nmtdeep.model.layers.positions import NoPositions, RelativePositions, Sinusoidal
from nmtdeep.model.layers.residual import (
    Admin,
    DeepNorm,
    NoNorm,
    NormalizedResidual,
    PostNorm,
    PreNorm,
    Residual,
    ReZero,
    deep_norm_scales,
)
from nmtdeep.model.transformer import Layer, Stack, Transformer
from nmtdeep.text.vocabulary import EOS, PAD

ENCODER_SUBLAYERS = (slots.SelfAttention(), slots.FeedForward())
# The ReLU is computed with the linear map before it.
ACTIVATIONS: dict[str, Callable[[], nn.Module | None]] = {
    "relu": lambda: None,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
}


def build(model: Model, *, source_types: int, target_types: int) -> Transformer:
    """Assemble the Transformer that `model` describes; its values are not yet initialized.

    Args:
        model: the recipe's section `model`.
        source_types: size of the source vocabulary.
        target_types: size of the target vocabulary; the same where all embeddings are shared.
    """
    target_table = nn.Parameter(torch.empty(target_types, model.width))
    source_table = target_table
    if model.embeddings.sharing != "all":
        source_table = nn.Parameter(torch.empty(source_types, model.width))
    elif source_types != target_types:
        raise ValueError(f"shared embeddings of {source_types} and {target_types} types")
    with torch.device("meta"):
        output = Linear(model.width, target_types, bias=False)
    output.weight = target_table
    if model.embeddings.sharing == "none":
        output.weight = nn.Parameter(torch.empty(target_types, model.width))
    if model.embeddings.output_bias:
        output.bias = nn.Parameter(torch.empty(target_types))
    common: dict[str, Any] = {
        "bias": nn.Parameter(torch.empty(model.width)) if model.embeddings.bias else None,
        "dropout": model.dropout.embedding,
        "scale": 1.0 if model.embeddings.scale == "one" else None,
    }
    # Decoding starts from </s>, which the decoder reads nowhere else.
    alias = (EOS, PAD) if model.embeddings.start == "pad" else None
    return Transformer(
        source_embedding=TokenEmbedding(source_table, _positions(model), **common),
        target_embedding=TokenEmbedding(target_table, _positions(model), **common, alias=alias),
        encoder=_stack(model, model.encoder),
        bridge=_bridge(model),
        decoder=_stack(model, model.decoder),
        output=output,
        pad=PAD,
    )


def initialize(
    transformer: Transformer, model: Model, *, seed: int, sample: Sample | None = None
) -> None:
    """Give every parameter its starting value, as the recipe's initializer says.

    Args:
        sample: sentences to measure on, which the initializer `admin` needs.
    """
    match model.initializer:
        case slots.Glorot() as chosen:
            initialization.glorot(transformer, **_fields(chosen), seed=seed)
        case slots.Lipschitz() as chosen:
            initialization.lipschitz(transformer, **_fields(chosen), seed=seed)
        case slots.DepthScaled() as chosen:
            initialization.depth_scaled(transformer, **_fields(chosen), seed=seed)
        case slots.AdminProfile():
            initialization.admin(transformer, sample, seed=seed)
        case slots.DeepNormBeta():
            initialization.deep_norm(transformer, seed=seed)
        case slots.TFixup():
            initialization.t_fixup(transformer, seed=seed)
        case _ as unknown:
            assert_never(unknown)


def _fields(section: Section) -> dict[str, Any]:
    """A variant's own fields, by name."""
    return section.model_dump(exclude={"type"})


def _stack(model: Model, stack: StackConfig) -> Stack:
    parts = stack.sublayers if isinstance(stack, Decoder) else ENCODER_SUBLAYERS
    layers = [
        Layer([_residual(model, stack, _sublayer(model, stack, part)) for part in parts])
        for _ in range(stack.depth)
    ]
    mixed = stack is model.encoder and isinstance(model.bridge, slots.Transparent)
    top_norm = nn.Identity() if mixed else _top_norm(model, stack)
    return Stack(layers, _combination(model, stack), top_norm)


def _norm(model: Model) -> nn.LayerNorm:
    return nn.LayerNorm(model.width, eps=model.norm_epsilon)


def _norm_place(residual: slots.Residual) -> Literal["before", "after", "nowhere"]:
    """The place of a stack's norms: before the sublayers, after the sums, or none."""
    match residual:
        case slots.PreNorm() | slots.NormalizedResidual():
            return "before"
        case slots.PostNorm() | slots.Admin() | slots.DeepNorm():
            return "after"
        case slots.ReZero() | slots.NoNorm():
            return "nowhere"
        case _ as unknown:
            assert_never(unknown)


def _top_norm(model: Model, stack: StackConfig) -> nn.Module:
    return _norm(model) if _norm_place(stack.residual) == "before" else nn.Identity()


def _residual(model: Model, stack: StackConfig, sublayer: Sublayer) -> Residual:
    dropout = model.dropout.residual
    match stack.residual:
        case slots.PreNorm():
            return PreNorm(sublayer, _norm(model), dropout=dropout)
        case slots.PostNorm():
            return PostNorm(sublayer, _norm(model), dropout=dropout)
        case slots.NormalizedResidual():
            return NormalizedResidual(sublayer, _norm(model), dropout=dropout)
        case slots.Admin():
            return Admin(sublayer, _norm(model), dropout=dropout)
        case slots.DeepNorm():
            scales = deep_norm_scales(model.encoder.depth, model.decoder.depth)
            alpha = scales[stack is model.decoder].alpha
            return DeepNorm(sublayer, _norm(model), alpha=alpha, dropout=dropout)
        case slots.ReZero():
            return ReZero(sublayer, dropout=dropout)
        case slots.NoNorm():
            return NoNorm(sublayer, dropout=dropout)
        case _ as unknown:
            assert_never(unknown)


def _sublayer(model: Model, stack: StackConfig, part: slots.DecoderSublayer) -> Sublayer:
    match part:
        case slots.SelfAttention():
            return _self_attention(model, stack)
        case slots.CrossAttention():
            return _cross_attention(model, stack)
        case slots.FeedForward():
            return _feed_forward(model, stack)
        case slots.AverageAttention():
            return _average_attention(model, stack, part)
        case slots.MergedAttention(average="simplified"):
            return MergedAttention(_cross_attention(model, stack))
        case slots.MergedAttention(average="average_attention"):
            average = _average_attention(model, stack, slots.AverageAttention())
            return Both(average, _cross_attention(model, stack))
        case slots.MergedAttention():
            return Both(_self_attention(model, stack), _cross_attention(model, stack))
        case _ as unknown:
            assert_never(unknown)


def _self_attention(model: Model, stack: StackConfig) -> SelfAttention:
    relative = None
    if isinstance(model.positions, slots.Relative):
        relative = RelativePositions(
            model.width // stack.heads, model.positions.clip, values=model.positions.values
        )
    return SelfAttention(
        model.width,
        stack.heads,
        dropout=model.dropout.attention,
        causal=isinstance(stack, Decoder),
        bias=model.biases == "all",
        relative=relative,
    )


def _cross_attention(model: Model, stack: StackConfig) -> CrossAttention:
    return CrossAttention(
        model.width, stack.heads, dropout=model.dropout.attention, bias=model.biases == "all"
    )


def _feed_forward(model: Model, stack: StackConfig) -> FeedForward:
    return FeedForward(
        model.width,
        stack.feed_forward,
        activation=ACTIVATIONS[model.activation](),
        dropout=model.dropout.activation,
        bias=model.biases == "all",
    )


def _average_attention(
    model: Model, stack: StackConfig, part: slots.AverageAttention
) -> AverageAttention:
    inner = _feed_forward(model, stack) if part.feed_forward else None
    return AverageAttention(model.width, gate=part.gate, feed_forward=inner)


def _combination(model: Model, stack: StackConfig) -> Combination:
    every = range(stack.depth + 1)
    match stack.combination:
        case slots.PlainStack():
            return PlainStack()
        case slots.Dense(weight=weight):
            weights = Weights(initial=weight, learnable=False)
            return _linear_combination(model, stack, stack.combination, every, weights)
        case slots.DynamicLinear() as part:
            return _linear_combination(
                model, stack, part, every, _weights(model, part), part.dropout
            )
        case slots.SparseBlocks(blocks=blocks) as part:
            ends = blocks if isinstance(blocks, tuple) else block_ends(stack.depth, blocks)
            return _linear_combination(
                model, stack, part, ends, _weights(model, part), part.dropout
            )
        case _ as unknown:
            assert_never(unknown)


def block_ends(depth: int, size: int) -> tuple[int, ...]:
    """Boundaries of blocks of `size` layers, a smaller one on top; 0 alone if none is full."""
    if size > depth:
        return (0,)
    return (*range(0, depth, size), depth)


def _weights(model: Model, part: slots.Learned) -> Weights:
    groups = {"scalar": 1, "vector": model.width, "scalar_n": part.groups or 1}[part.weights]
    return Weights(groups, part.initial, part.learnable, part.softmax, part.window)


def _linear_combination(
    model: Model,
    stack: StackConfig,
    part: slots.Linear,
    boundaries: tuple[int, ...] | range,
    weights: Weights,
    dropout: float = 0.0,
) -> LinearCombination:
    place = _norm_place(stack.residual)
    count = {"layers": len(boundaries) - 1, "all": len(boundaries), "none": 0}[part.norm]
    return LinearCombination(
        boundaries,
        model.width,
        weights=weights,
        norms=[_norm(model) for _ in range(count)],
        place="after" if place == "after" else "before",
        dropout=dropout,
    )


def _bridge(model: Model) -> Bridge:
    depths = (model.encoder.depth, model.decoder.depth)
    match model.bridge:
        case slots.TopLayer():
            return TopLayer(model.decoder.depth)
        case slots.Transparent(dropout=dropout):
            return Transparent(*depths, _top_norm(model, model.encoder), dropout=dropout)
        case _ as unknown:
            assert_never(unknown)


def _positions(model: Model) -> nn.Module:
    match model.positions:
        case slots.Sinusoidal(first=first, rates=rates):
            return Sinusoidal(model.width, first=first, rates=rates)
        case slots.Relative(sinusoids=True):
            return Sinusoidal(model.width)
        case slots.Relative():
            return NoPositions()
        case _ as unknown:
            assert_never(unknown)
