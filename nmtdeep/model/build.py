"""From the recipe's section `model` to an initialized Transformer: one `match` per slot."""

from __future__ import annotations

from typing import Any, assert_never

import torch
from torch import nn

from nmtdeep.config import slots
from nmtdeep.config.model import SIDES, Model
from nmtdeep.config.model import Stack as StackConfig
from nmtdeep.config.section import Section
from nmtdeep.model import initialization
from nmtdeep.model.build_combinations import combination
from nmtdeep.model.build_layers import layer, top_norm
from nmtdeep.model.initialization import Rules, Sample
from nmtdeep.model.layers.bridge import Bridge, Projection, TopLayer, Transparent
from nmtdeep.model.layers.embedding import TokenEmbedding
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
    common: dict[str, Any] = {
        "bias": nn.Parameter(torch.empty(decoder.width)) if model.embeddings.bias else None,
        "dropout": model.dropout.embedding,
        "scale": 1.0 if model.embeddings.scale == "one" else None,
    }
    # Decoding starts from </s>, which the decoder reads nowhere else.
    alias = (EOS, PAD) if model.embeddings.start == "pad" else None
    source_places = _positions(encoder, encoder.encoder)
    target_places = _positions(decoder, decoder.decoder)
    return Transformer(
        source_embedding=TokenEmbedding(source_table, source_places, **common),
        target_embedding=TokenEmbedding(target_table, target_places, **common, alias=alias),
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
            return initialization.glorot(**_fields(chosen))
        case slots.Lipschitz() as chosen:
            return initialization.lipschitz(**_fields(chosen))
        case slots.DepthScaled() as chosen:
            return initialization.depth_scaled(**_fields(chosen))
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


def _fields(section: Section) -> dict[str, Any]:
    """A variant's own fields, by name."""
    return section.model_dump(exclude={"type"})


def _stack(model: Model, stack: StackConfig) -> Stack:
    layers = [layer(model, stack) for _ in range(stack.depth)]
    mixed = stack is model.encoder and isinstance(model.bridge, slots.Transparent)
    norm = nn.Identity() if mixed else top_norm(model, stack)
    return Stack(layers, combination(model, stack, top=not mixed), norm)


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
