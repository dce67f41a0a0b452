"""A model as transformers' MarianMT: weights, configuration, and a tokenizer of split text.

MarianMT is post-norm with sinusoids. Its own table of sinusoids has other wavelengths than ours, so
that ours goes with the weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmtdeep.checkpoint import save_tensors
from nmtdeep.config.model import Model
from nmtdeep.config.recipe import Recipe
from nmtdeep.export.plain import Map, Norm, Part, PlainStack, obstacles, plain
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS, UNK, Vocabulary, is_shared

POSITIONS = 2048
POST_NORM = ("post_norm", "admin", "deep_norm")
NAMES = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
FEED_FORWARD = {"inner": "fc1", "outer": "fc2"}


def reasons(model: Model) -> list[str]:
    """Everything of a recipe's section `model` that MarianMT has no place for."""
    found = obstacles(model)
    stacks = (("encoder", model.encoder), ("decoder", model.decoder))
    found += [
        f"model.{name}.residual: {stack.residual.type}: MarianMT's norms stand after the sums, and "
        "nowhere else"
        for name, stack in stacks
        if stack.residual.type not in (*POST_NORM, "rezero", "no_norm")
    ]
    if model.positions.type != "sinusoidal":
        found.append(f"model.positions: {model.positions.type}: MarianMT has sinusoids")
    if model.norm_epsilon != nn.LayerNorm(1).eps:
        found.append(f"model.norm_epsilon: {model.norm_epsilon:g}: MarianMT has 1e-05")
    return found


def write(folder: Path, transformer: Transformer, recipe: Recipe, pipeline: TextPipeline) -> None:
    """Write model.safetensors, the configurations and the tokenizer's files.

    A model with a source vocabulary of its own gets a second tokenizer, of its target, in the
    folder `target`.

    Args:
        recipe: the model's, against which there are no `reasons`.
    """
    tensors = named(transformer, recipe.model)
    save_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    shared = "model.shared.weight" in tensors
    tied = shared or "lm_head.weight" not in tensors
    source, target = pipeline.source.vocabulary, pipeline.target.vocabulary
    configuration = _configuration(recipe, len(source), len(target), shared=shared, tied=tied)
    _write(folder / "config.json", configuration)
    _write(folder / "generation_config.json", _generation(recipe))
    _tokenizer(folder, source)
    if not is_shared((source, target)):
        _tokenizer(folder / "target", target)


def named(transformer: Transformer, model: Model) -> dict[str, Tensor]:
    """Our tensors under MarianMT's names; a table that is shared stands there once."""
    simple = plain(transformer, model, rows=POSITIONS)
    source, target, output = simple.encoder.table, simple.decoder.table, simple.output
    tables = {"model.encoder.embed_tokens.weight": source}
    if _same(source, target) and _same(target, output):
        tables = {"model.shared.weight": source}
    elif _same(target, output):
        tables["model.decoder.embed_tokens.weight"] = target
    else:
        tables |= {"model.decoder.embed_tokens.weight": target, "lm_head.weight": output}
    found = {**tables, "final_logits_bias": torch.zeros(1, len(output))}
    for name, stack in (("encoder", simple.encoder), ("decoder", simple.decoder)):
        found |= _stack(f"model.{name}", stack)
    return {name: tensor.clone() for name, tensor in found.items()}


def _same(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr()


def _stack(name: str, stack: PlainStack) -> dict[str, Tensor]:
    if stack.positions is None:
        raise ValueError("MarianMT without positions")
    found = {f"{name}.embed_positions.weight": stack.positions}
    for number, layer in enumerate(stack.layers):
        place = f"{name}.layers.{number}"
        *attentions, feed_forward = layer
        for kind, part in zip(("self_attn", "encoder_attn"), attentions, strict=False):
            found |= _maps(f"{place}.{kind}", part, NAMES)
            found |= _norm(f"{place}.{kind}_layer_norm", part.norm)
        found |= _maps(place, feed_forward, FEED_FORWARD)
        found |= _norm(f"{place}.final_layer_norm", feed_forward.norm)
    return found


def _maps(place: str, part: Part, names: dict[str, str]) -> dict[str, Tensor]:
    found = {}
    for ours, theirs in names.items():
        one: Map = part.maps[ours]
        found[f"{place}.{theirs}.weight"] = one.weight
        bias = one.weight.new_zeros(len(one.weight)) if one.bias is None else one.bias
        found[f"{place}.{theirs}.bias"] = bias
    return found


def _norm(place: str, norm: Norm | None) -> dict[str, Tensor]:
    if norm is None:
        raise ValueError(f"{place}: MarianMT without a norm")
    return {f"{place}.weight": norm.weight, f"{place}.bias": norm.bias}


def _configuration(
    recipe: Recipe, source: int, target: int, *, shared: bool, tied: bool
) -> dict[str, Any]:
    model, dropout = recipe.model, recipe.model.dropout
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "vocab_size": source,
        "decoder_vocab_size": target,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied,
        "d_model": model.width,
        "encoder_layers": model.encoder.depth,
        "decoder_layers": model.decoder.depth,
        "encoder_attention_heads": model.encoder.heads,
        "decoder_attention_heads": model.decoder.heads,
        "encoder_ffn_dim": model.encoder.feed_forward,
        "decoder_ffn_dim": model.decoder.feed_forward,
        "max_position_embeddings": POSITIONS,
        "activation_function": "relu",
        "scale_embedding": True,
        "dropout": dropout.residual,
        "attention_dropout": dropout.attention,
        "activation_dropout": dropout.activation,
        "is_encoder_decoder": True,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "decoder_start_token_id": EOS,
        "forced_eos_token_id": EOS,
        "dtype": "float32",
    }


def _generation(recipe: Recipe) -> dict[str, Any]:
    """Our search in the words of `generate`: the same rules, and one length limit for a batch."""
    decoding = recipe.decoding
    factor, constant = decoding.max_length_factor, decoding.max_length_constant
    return {
        "num_beams": decoding.beam,
        "do_sample": False,
        "early_stopping": True,
        "length_penalty": 0.0 if decoding.lenpen_form == "none" else decoding.lenpen,
        "min_new_tokens": 1,
        "max_new_tokens": min(int(decoding.max_source_tokens * factor) + constant, POSITIONS - 1),
        "suppress_tokens": [PAD],
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "decoder_start_token_id": EOS,
        "forced_eos_token_id": EOS,
    }


def _tokenizer(folder: Path, vocabulary: Vocabulary) -> None:
    """Ids of subwords between spaces, and the end of sentence; text has to be split before."""
    folder.mkdir(exist_ok=True)
    pad, end, unknown = (SPECIALS[id] for id in (PAD, EOS, UNK))
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    _write(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "added_tokens": [
                {"id": id, "content": token, "special": True, **special}
                for id, token in enumerate(SPECIALS)
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": _ends_in(end),
            "decoder": None,
            "model": {
                "type": "WordLevel",
                # No word of a text is a filler, however it is spelt.
                "vocab": {
                    token: id
                    for id, token in enumerate(vocabulary.tokens)
                    if id < len(SPECIALS) or token in vocabulary
                },
                "unk_token": unknown,
            },
        },
    )
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": pad,
            "eos_token": end,
            "unk_token": unknown,
            "model_max_length": POSITIONS,
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        },
    )


def _ends_in(end: str) -> dict[str, Any]:
    def sequence(name: str, number: int) -> list[dict[str, Any]]:
        return [
            {"Sequence": {"id": name, "type_id": number}},
            {"SpecialToken": {"id": end, "type_id": number}},
        ]

    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": [*sequence("A", 0), *sequence("B", 1)],
        "special_tokens": {end: {"id": end, "ids": [EOS], "tokens": [end]}},
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
