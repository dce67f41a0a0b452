"""From the recipe's section `model` to an initialized Transformer: one `match` per slot."""

from __future__ import annotations

from functools import partial
from typing import assert_never

import torch
from torch import nn

from nmtdeep.config import slots
from nmtdeep.config.model import SIDES, Model, of_sublayers
from nmtdeep.config.model import Stack as StackConfig
from nmtdeep.errors import ConfigError
from nmtdeep.model import initialization
from nmtdeep.model.build_layers import layer, layer_norm, norm_place, top_norm
from nmtdeep.model.initialization import Rules, Sample
from nmtdeep.model.layers.attention_residuals import AttentionResiduals
from nmtdeep.model.layers.bridge import Bridge, Projection, TopLayer, Transparent
from nmtdeep.model.layers.combination import Combination, LinearCombination, PlainStack, Weights
from nmtdeep.model.layers.embedding import TokenEmbedding
from nmtdeep.model.layers.hyper_connections import (
    HyperConnection,
    HyperConnections,
    ManifoldConnection,
)
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.positions import NoPositions, Sinusoidal
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.text.vocabulary import EOS, PAD


def build(model: Model, *, source_types: int, target_types: int) -> Transformer:
    """Assemble the Transformer that `model` describes; its values are not yet initialized.

    Args:
        model: the recipe's section `model`.
        source_types: size of the source vocabulary.
        target_types: size of the target vocabulary; the same where all embeddings are shared.
    """
    encoder, decoder = (model.within(side) for side in SIDES)
    target_table = nn.Parameter(torch.empty(target_types, decoder.width))
    source_table = target_table
    if model.embeddings.sharing != "all":
        source_table = nn.Parameter(torch.empty(source_types, encoder.width))
    elif source_types != target_types:
        raise ValueError(f"shared embeddings of {source_types} and {target_types} types")
    with torch.device("meta"):
        output = Linear(decoder.width, target_types, bias=False)
    output.weight = target_table
    if model.embeddings.sharing == "none":
        output.weight = nn.Parameter(torch.empty(target_types, decoder.width))
    if model.embeddings.output_bias:
        output.bias = nn.Parameter(torch.empty(target_types))
    embedding = partial(
        TokenEmbedding,
        bias=nn.Parameter(torch.empty(decoder.width)) if model.embeddings.bias else None,
        dropout=model.dropout.embedding,
        scale=1.0 if model.embeddings.scale == "one" else None,
    )
    # Decoding starts from </s>, which the decoder reads nowhere else.
    start = model.embeddings.start
    first = partial(
        embedding,
        alias=(EOS, PAD) if start == "pad" else None,
        zero=EOS if start == "zero" else None,
    )
    return Transformer(
        source_embedding=embedding(source_table, _positions(encoder, encoder.encoder)),
        target_embedding=first(target_table, _positions(decoder, decoder.decoder)),
        encoder=_stack(encoder, encoder.encoder),
        bridge=_bridge(encoder),
        decoder=_stack(decoder, decoder.decoder),
        output=output,
        pad=PAD,
    )


def initialize(
    transformer: Transformer, model: Model, *, seed: int, sample: Sample | None = None
) -> None:
    """Give every parameter its starting value, as the initializers of the recipe say.

    Args:
        sample: sentences on which the initializer `admin` measures its omegas; without any, they
            start at 1.
    """
    chosen = {side: getattr(model, side).initializer or model.initializer for side in SIDES}
    rules = {side: _rules(model, initializer) for side, initializer in chosen.items()}
    initialization.draw_values(transformer, _rules(model, model.initializer), seed=seed, **rules)
    measured = [side for side in SIDES if isinstance(chosen[side], slots.AdminProfile)]
    if measured and sample is not None:
        stacks = [getattr(transformer, side) for side in measured]
        initialization.admin(transformer, sample, stacks)


def _rules(model: Model, initializer: slots.Initializer) -> Rules:
    depths = (model.encoder.depth, model.decoder.depth)
    match initializer:
        case slots.Glorot() as chosen:
            return initialization.glorot(**chosen.model_dump(exclude={"type"}))
        case slots.Lipschitz() as chosen:
            return initialization.lipschitz(**chosen.model_dump(exclude={"type"}))
        case slots.DepthScaled() as chosen:
            return initialization.depth_scaled(**chosen.model_dump(exclude={"type"}))
        case slots.AdminProfile():
            return initialization.glorot()
        case slots.DeepNormBeta():
            return initialization.deep_norm(*depths)
        case slots.TFixup():
            return initialization.t_fixup(*depths)
        case slots.InitializerVariant() as chosen:
            return chosen.rules(model)
        case _ as unknown:
            assert_never(unknown)


def _stack(model: Model, stack: StackConfig) -> Stack:
    layers = [layer(model, stack) for _ in range(stack.depth)]
    mixed = stack is model.encoder and isinstance(model.bridge, slots.Transparent)
    norm = nn.Identity() if mixed else top_norm(model, stack)
    return Stack(layers, _combination(model, stack, top=not mixed), norm)


def _combination(model: Model, stack: StackConfig, *, top: bool) -> Combination:
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
        case slots.ManifoldHyperConnections(streams=streams, iterations=steps, start=start):
            manifold = [
                ManifoldConnection(
                    k, streams, width, iterations=steps, start=start, epsilon=epsilon
                )
                for k in sublayers
            ]
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


def _bridge(model: Model) -> Bridge:
    depths = (model.encoder.depth, model.decoder.depth)
    match model.bridge:
        case slots.TopLayer():
            return TopLayer(model.decoder.depth)
        case slots.Projection():
            bias = model.biases == "all"
            projection = Linear(model.width_of("encoder"), model.width_of("decoder"), bias=bias)
            return Projection(model.decoder.depth, projection)
        case slots.Transparent(dropout=dropout):
            return Transparent(*depths, top_norm(model, model.encoder), dropout=dropout)
        case slots.BridgeVariant() as chosen:
            return chosen.build(model)
        case _ as unknown:
            assert_never(unknown)


def _positions(model: Model, stack: StackConfig) -> nn.Module:
    match model.positions:
        case slots.Sinusoidal(first=first, rates=rates):
            return Sinusoidal(model.width, first=first, rates=rates)
        case slots.Relative(sinusoids=True, first=first):
            return Sinusoidal(model.width, first=first)
        case slots.Relative() | slots.Rotary():
            return NoPositions()
        case slots.PositionsVariant() as chosen:
            return chosen.build(model, stack)
        case _ as unknown:
            assert_never(unknown)
