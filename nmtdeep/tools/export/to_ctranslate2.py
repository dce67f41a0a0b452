"""A model in CTranslate2's format (https://opennmt.net/CTranslate2): weights and vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from nmtdeep.config import slots
from nmtdeep.config.decoding import Decoding
from nmtdeep.config.model import Model
from nmtdeep.errors import Problem
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabulary
from nmtdeep.tools.export import weights
from nmtdeep.tools.export.weights import Affine, NormWeights, StackWeights, SublayerWeights

# CTranslate2 refuses a token beyond its table.
POSITIONS = 2048


def unsupported(model: Model) -> list[Problem]:
    """Everything in a recipe's section `model` that CTranslate2 cannot compute."""
    problems = weights.unsupported(model)
    if isinstance(model.positions, slots.Relative) and model.positions.sinusoids:
        what = "relative positions with sinusoids: only one of them is possible"
        problems.append(Problem(what, "model.positions", "set sinusoids: false"))
    if isinstance(model.positions, slots.Rotary):
        what = "rotary: its encoders add positions to embeddings or keys"
        problems.append(Problem(what, "model.positions", "set it to sinusoidal"))
    return problems


def write(
    folder: Path,
    transformer: Transformer,
    model: Model,
    tokens: tuple[Sequence[str], Sequence[str]],
    *,
    quantization: str | None = None,
    rows: int = POSITIONS,
) -> None:
    """Write model.bin, config.json and the vocabularies into an empty `folder`.

    Args:
        model: the section `model` of its recipe, which has to be supported.
        tokens: by id, of source and target.
        quantization: how weights are stored, by CTranslate2's names; None: fp32.
        rows: length of the longest sentence that the result can translate, in tokens.
    """
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderSpec,
        TransformerEncoderSpec,
        TransformerSpec,
    )

    model_weights = weights.of_model(transformer, model, rows=rows)
    encoder = _stack(TransformerEncoderSpec, model_weights.encoder, model.activation)
    decoder = _stack(TransformerDecoderSpec, model_weights.decoder, model.activation)
    spec = TransformerSpec(encoder, decoder)
    _linear(spec.decoder.projection, [model_weights.output])
    config = spec.config
    config.layer_norm_epsilon = model.norm_epsilon
    config.bos_token = config.eos_token = SPECIALS[EOS]
    config.decoder_start_token = SPECIALS[PAD if model.embeddings.start == "pad" else EOS]
    config.unk_token = SPECIALS[UNK]
    spec.register_source_vocabulary(list(tokens[0]))
    spec.register_target_vocabulary(list(tokens[1]))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def search_options(decoding: Decoding, target: Vocabulary, longest: int = 0) -> dict[str, Any]:
    """Our settings as arguments of CTranslate2's `translate_batch`.

    Args:
        longest: tokens of the longest source, its end included.
    """
    limit = int(longest * decoding.max_length_factor) + decoding.max_length_constant
    return {
        "beam_size": decoding.beam,
        "length_penalty": 0.0 if decoding.lenpen_form == "none" else decoding.lenpen,
        "min_decoding_length": 1,
        # Our limit includes the end of sentence, which CTranslate2 omits at the limit.
        "max_decoding_length": max(1, limit - 1),
        "max_input_length": 0,
        "suppress_sequences": [[target.tokens[id]] for id in (PAD, *target.fillers)],
        "disable_unk": not decoding.allow_unk,
    }


def _stack(kind: Any, stack: StackWeights, activation: str) -> Any:
    from ctranslate2.specs.common_spec import Activation

    spec = kind(
        len(stack.layers),
        stack.heads,
        pre_norm=stack.pre_norm,
        no_final_norm=stack.top_norm is None,
        activation=Activation[activation.upper()],
        layernorm_embedding=stack.embedding_norm is not None,
        relative_position=stack.layers[0][0].relative is not None,
    )
    spec.scale_embeddings = stack.scaled
    tables = spec.embeddings if isinstance(spec.embeddings, list) else [spec.embeddings]
    tables[0].weight = stack.table
    if stack.positions is not None:
        spec.position_encodings.encodings = stack.positions
    _norm(spec, "layer_norm", stack.top_norm)
    _norm(spec, "layernorm_embedding", stack.embedding_norm)
    for layer, (attention, *cross_attention, feed_forward) in zip(
        spec.layer, stack.layers, strict=True
    ):
        _sublayer(layer.self_attention, attention, ["query", "key", "value"], ["output"])
        for cross in cross_attention:
            _sublayer(layer.attention, cross, ["query"], ["key", "value"], ["output"])
        _linear(layer.ffn.linear_0, [feed_forward.maps["inner"]])
        _linear(layer.ffn.linear_1, [feed_forward.maps["outer"]])
        _norm(layer.ffn, "layer_norm", feed_forward.norm)
    return spec


def _sublayer(spec: Any, attention: SublayerWeights, *packed: list[str]) -> None:
    """Fill in an attention, whose linear maps are packed into one another as CTranslate2 does."""
    from ctranslate2.specs.model_spec import OPTIONAL

    for linear, names in zip(spec.linear, packed, strict=True):
        _linear(linear, [attention.maps[name] for name in names])
    _norm(spec, "layer_norm", attention.norm)
    if attention.relative is not None:
        keys, values = attention.relative
        spec.relative_position_keys = keys
        spec.relative_position_values = OPTIONAL if values is None else values


def _linear(spec: Any, maps: Sequence[Affine]) -> None:
    spec.weight = torch.cat([part.weight for part in maps])
    biases = [part.bias for part in maps if part.bias is not None]
    if biases:
        spec.bias = torch.cat(biases)


def _norm(parent: Any, name: str, norm: NormWeights | None) -> None:
    """Fill in a norm, or remove its place."""
    if norm is not None:
        place = getattr(parent, name)
        place.gamma, place.beta = norm.weight, norm.bias
    elif hasattr(parent, name):
        delattr(parent, name)
