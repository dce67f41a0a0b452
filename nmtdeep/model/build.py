"""The only place where a config value becomes a class: one `match` per slot."""

from __future__ import annotations

from typing import assert_never

from torch import nn

from nmtdeep.config import model as config
from nmtdeep.model.initialisation import glorot
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.bridge import Bridge, TopLayer
from nmtdeep.model.layers.combination import Combination, PlainStack
from nmtdeep.model.layers.context import Sublayer
from nmtdeep.model.layers.embedding import OutputProjection, TokenEmbedding, empty_table
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.layers.positions import Sinusoidal
from nmtdeep.model.layers.residual import PostNorm, PreNorm, Residual
from nmtdeep.model.transformer import Layer, Stack, Transformer
from nmtdeep.text.vocabulary import PAD

ENCODER_SUBLAYERS = (config.SelfAttention(), config.FeedForward())


def build(model: config.Model, *, source_types: int, target_types: int) -> Transformer:
    """Assemble the Transformer that `model` describes; its values are not yet initialised.

    Args:
        model: the recipe's section `model`.
        source_types: size of the source vocabulary.
        target_types: size of the target vocabulary; the same where all embeddings are shared.
    """
    target_table = empty_table(target_types, model.width)
    source_table = target_table
    if model.embeddings.sharing != "all":
        source_table = empty_table(source_types, model.width)
    elif source_types != target_types:
        raise ValueError(f"shared embeddings of {source_types} and {target_types} types")
    output_table = target_table
    if model.embeddings.sharing == "none":
        output_table = empty_table(target_types, model.width)
    bias = nn.Parameter(empty_table(1, model.width)[0].detach()) if model.embeddings.bias else None
    dropout = model.dropout.embedding
    return Transformer(
        source_embedding=TokenEmbedding(
            source_table, _positions(model), bias=bias, dropout=dropout
        ),
        target_embedding=TokenEmbedding(
            target_table, _positions(model), bias=bias, dropout=dropout
        ),
        encoder=_stack(model, model.encoder, ENCODER_SUBLAYERS, causal=False),
        bridge=_bridge(model.bridge),
        decoder=_stack(model, model.decoder, model.decoder.sublayers, causal=True),
        output=OutputProjection(output_table),
        pad=PAD,
    )


def initialise(transformer: Transformer, model: config.Model, *, seed: int) -> None:
    """Give every parameter its starting value, as the recipe's initialiser says."""
    match model.initialiser:
        case config.Glorot(gain=gain):
            glorot(transformer, gain=gain, seed=seed)
        case _ as unknown:
            assert_never(unknown)


def _stack(
    model: config.Model,
    stack: config.Stack,
    sublayers: tuple[config.DecoderSublayer, ...],
    *,
    causal: bool,
) -> Stack:
    layers = [
        Layer(
            [_residual(model, stack, _sublayer(model, stack, part, causal)) for part in sublayers]
        )
        for _ in range(stack.depth)
    ]
    return Stack(layers, _combination(stack.combination), _top_norm(model, stack.residual))


def _norm(model: config.Model) -> nn.LayerNorm:
    return nn.LayerNorm(model.width, eps=model.norm_epsilon)


def _top_norm(model: config.Model, residual: config.Residual) -> nn.Module:
    match residual:
        case config.PreNorm():
            return _norm(model)
        case config.PostNorm():
            return nn.Identity()
        case _ as unknown:
            assert_never(unknown)


def _residual(model: config.Model, stack: config.Stack, sublayer: Sublayer) -> Residual:
    match stack.residual:
        case config.PreNorm():
            return PreNorm(sublayer, _norm(model), dropout=model.dropout.residual)
        case config.PostNorm():
            return PostNorm(sublayer, _norm(model), dropout=model.dropout.residual)
        case _ as unknown:
            assert_never(unknown)


def _sublayer(
    model: config.Model, stack: config.Stack, part: config.DecoderSublayer, causal: bool
) -> Sublayer:
    attention = model.dropout.attention
    match part:
        case config.SelfAttention():
            return SelfAttention(model.width, stack.heads, dropout=attention, causal=causal)
        case config.CrossAttention():
            return CrossAttention(model.width, stack.heads, dropout=attention)
        case config.FeedForward():
            return FeedForward(model.width, stack.feed_forward, dropout=model.dropout.activation)
        case _ as unknown:
            assert_never(unknown)


def _combination(combination: config.PlainStack) -> Combination:
    match combination:
        case config.PlainStack():
            return PlainStack()
        case _ as unknown:
            assert_never(unknown)


def _bridge(bridge: config.TopLayer) -> Bridge:
    match bridge:
        case config.TopLayer():
            return TopLayer()
        case _ as unknown:
            assert_never(unknown)


def _positions(model: config.Model) -> Sinusoidal:
    match model.positions:
        case config.Sinusoidal():
            return Sinusoidal(model.width)
        case _ as unknown:
            assert_never(unknown)
