"""A model in CTranslate2's format (https://opennmt.net/CTranslate2): weights and vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmtdeep.config import slots
from nmtdeep.config.model import Model
from nmtdeep.errors import UserError
from nmtdeep.export import plain
from nmtdeep.export.plain import Map, Norm, Part, PlainStack, obstacles
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS, SPECIALS, UNK

# CTranslate2 refuses a token beyond its table.
POSITIONS = 2048


def check_installed() -> None:
    """UserError unless CTranslate2 is there."""
    try:
        import ctranslate2  # noqa: F401
    except ImportError as error:
        raise UserError(
            f'CTranslate2 cannot be used ({error}): pip install "nmtdeep[export]"'
        ) from error


def reasons(model: Model) -> list[str]:
    """Everything of a recipe's section `model` that CTranslate2 has no place for."""
    found = obstacles(model)
    if isinstance(model.positions, slots.Relative) and model.positions.sinusoids:
        found.append(
            "model.positions: relative with sinusoids: true: relative positions, or sinusoids, not "
            "both"
        )
    return found


def write(
    folder: Path,
    transformer: Transformer,
    model: Model,
    *,
    source: Sequence[str],
    target: Sequence[str],
    quantization: str | None = None,
    rows: int = POSITIONS,
) -> None:
    """Write model.bin, config.json and the vocabularies into an empty `folder`.

    Args:
        model: the recipe's section, against which there are no `reasons`.
        source: tokens by id; the target's may be the same.
        quantization: how weights are stored, by CTranslate2's names; None: fp32.
        rows: the longest sentence that the result takes, in tokens.
    """
    from ctranslate2.specs.transformer_spec import TransformerSpec

    simple = plain.plain(transformer, model, rows=rows)
    spec = TransformerSpec(_encoder(simple.encoder), _decoder(simple.decoder))
    spec.decoder.projection.weight = simple.output
    config = spec.config
    config.layer_norm_epsilon = simple.epsilon
    end = SPECIALS[EOS]
    config.decoder_start_token = config.bos_token = config.eos_token = end
    config.unk_token = SPECIALS[UNK]
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _encoder(stack: PlainStack) -> Any:
    from ctranslate2.specs.transformer_spec import TransformerEncoderSpec

    spec = TransformerEncoderSpec(len(stack.layers), stack.heads, **_shape(stack))
    spec.embeddings[0].weight = stack.table
    _fill(spec, stack)
    for layer, (own, feed_forward) in zip(spec.layer, stack.layers, strict=True):
        _self_attention(layer.self_attention, own)
        _feed_forward(layer.ffn, feed_forward)
    return spec


def _decoder(stack: PlainStack) -> Any:
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec

    spec = TransformerDecoderSpec(len(stack.layers), stack.heads, **_shape(stack))
    spec.embeddings.weight = stack.table
    _fill(spec, stack)
    for layer, (own, across, feed_forward) in zip(spec.layer, stack.layers, strict=True):
        _self_attention(layer.self_attention, own)
        maps = across.maps
        _linear(layer.attention.linear[0], maps["query"])
        _linear(layer.attention.linear[1], maps["key"], maps["value"])
        _linear(layer.attention.linear[2], maps["output"])
        _norm(layer.attention, across.norm)
        _feed_forward(layer.ffn, feed_forward)
    return spec


def _shape(stack: PlainStack) -> dict[str, Any]:
    from ctranslate2.specs.common_spec import Activation

    return {
        "pre_norm": stack.place != "after",
        "no_final_norm": stack.top_norm is None,
        "activation": Activation.RELU,
        "layernorm_embedding": stack.embedding_norm is not None,
        "relative_position": stack.layers[0][0].relative is not None,
    }


def _fill(spec: Any, stack: PlainStack) -> None:
    """What stands below and above the layers."""
    if stack.positions is not None:
        spec.position_encodings.encodings = stack.positions
    if stack.top_norm is not None:
        _set(spec.layer_norm, stack.top_norm)
    if stack.embedding_norm is not None:
        _set(spec.layernorm_embedding, stack.embedding_norm)


def _self_attention(spec: Any, part: Part) -> None:
    from ctranslate2.specs.model_spec import OPTIONAL

    maps = part.maps
    _linear(spec.linear[0], maps["query"], maps["key"], maps["value"])
    _linear(spec.linear[1], maps["output"])
    _norm(spec, part.norm)
    if part.relative is not None:
        keys, values = part.relative
        spec.relative_position_keys = keys
        spec.relative_position_values = OPTIONAL if values is None else values


def _feed_forward(spec: Any, part: Part) -> None:
    _linear(spec.linear_0, part.maps["inner"])
    _linear(spec.linear_1, part.maps["outer"])
    _norm(spec, part.norm)


def _linear(spec: Any, *maps: Map) -> None:
    """One map, or several packed into one."""
    spec.weight = torch.cat([one.weight for one in maps])
    biases = [one.bias for one in maps if one.bias is not None]
    if biases:
        spec.bias = torch.cat(biases)


def _norm(spec: Any, norm: Norm | None) -> None:
    if norm is None:
        del spec.layer_norm
    else:
        _set(spec.layer_norm, norm)


def _set(spec: Any, norm: Norm) -> None:
    spec.gamma, spec.beta = norm.weight, norm.bias
