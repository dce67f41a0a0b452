"""A model for transformers: weights, configuration, and with SentencePiece a tokenizer.

Its classes after BART differ in the place of norms: MarianMT is post-norm, Pegasus pre-norm, BART
itself post-norm behind a norm of the embeddings, which is our residual `normalized`. Their tables
of positions have other wavelengths than ours, or are learned, so ours is exported with the weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nmtdeep.checkpoint import save_tensors
from nmtdeep.config.model import Model
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import Problem
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.pipeline import TextPipeline
from nmtdeep.text.sentencepiece import SentencePiece
from nmtdeep.text.vocabulary import EOS, PAD, SPECIALS, UNK
from nmtdeep.tools.export import weights
from nmtdeep.tools.export.weights import NormWeights, StackWeights, SublayerWeights

POSITIONS = 2048
NAMES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
}


class Family(NamedTuple):
    """A class of transformers.

    Attributes:
        type: `model_type` in its configuration.
        name: of the class.
        skipped: rows of its table of positions before the first one.
    """

    type: str
    name: str
    skipped: int = 0


MARIAN = Family("marian", "MarianMTModel")
PEGASUS = Family("pegasus", "PegasusForConditionalGeneration")
BART = Family("bart", "BartForConditionalGeneration", 2)
FAMILIES = {
    "post_norm": MARIAN,
    "admin": MARIAN,
    "deep_norm": MARIAN,
    "pre_norm": PEGASUS,
    "normalized": BART,
}


def unsupported(model: Model) -> list[Problem]:
    """Everything in a recipe's section `model` that no class computes, and what to change."""
    problems = weights.unsupported(model)
    residuals = (model.encoder.residual.type, model.decoder.residual.type)
    families = {FAMILIES.get(residual) for residual in residuals} - {None}
    if len(families) > 1:
        what = f"{residuals[0]} and {residuals[1]}: no class has norms in both places"
        hint = "use the same one in encoder and decoder"
        problems.append(Problem(what, "model.decoder.residual", hint))
    if families and MARIAN not in families and model.embeddings.sharing != "all":
        what = f"{model.embeddings.sharing}: only MarianMT, which is post-norm, has several tables"
        hint = "set it to all, or both residuals to post_norm"
        problems.append(Problem(what, "model.embeddings.sharing", hint))
    if model.positions.type != "sinusoidal":
        what = f"{model.positions.type}: the classes add positions to embeddings"
        problems.append(Problem(what, "model.positions", "set it to sinusoidal"))
    if model.norm_epsilon != nn.LayerNorm(1).eps:
        what = f"{model.norm_epsilon:g}: the classes have 1e-05"
        problems.append(Problem(what, "model.norm_epsilon", "set it to 1e-5"))
    return problems


def family(model: Model) -> Family:
    """The class that computes a supported model."""
    return FAMILIES[model.encoder.residual.type]


def write(folder: Path, transformer: Transformer, recipe: Recipe, pipeline: TextPipeline) -> None:
    """Write model.safetensors, the configurations, and with SentencePiece a tokenizer.

    It is MarianTokenizer, which reads raw text; no class of transformers splits text as Moses and
    subword-nmt do.

    Args:
        recipe: of the model, which has to be supported.
    """
    tensors = named(transformer, recipe.model)
    save_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    shared = "model.shared.weight" in tensors
    tied = shared or "lm_head.weight" not in tensors
    source, target = pipeline.source.vocabulary, pipeline.target.vocabulary
    configuration = _configuration(recipe, len(source), len(target), shared=shared, tied=tied)
    _write(folder / "config.json", configuration)
    _write(folder / "generation_config.json", _generation(recipe, target.fillers))
    if isinstance(pipeline.source.model, SentencePiece):
        _marian_tokenizer(folder, pipeline)


def named(transformer: Transformer, model: Model) -> dict[str, Tensor]:
    """Our tensors under the names of its class; a shared table is included once."""
    source, target, output = weights.of_model(transformer, model, rows=POSITIONS)
    tables = {"model.encoder.embed_tokens.weight": source.table}
    if _same(source.table, target.table) and _same(target.table, output.weight):
        tables = {"model.shared.weight": source.table}
    else:
        tables["model.decoder.embed_tokens.weight"] = target.table
        if not _same(target.table, output.weight):
            tables["lm_head.weight"] = output.weight
    bias = torch.zeros(len(output.weight)) if output.bias is None else output.bias
    tensors = {**tables, "final_logits_bias": bias[None]}
    for name, stack in (("encoder", source), ("decoder", target)):
        tensors |= _stack(f"model.{name}", stack, family(model).skipped)
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _same(table: Tensor, other: Tensor) -> bool:
    return table.data_ptr() == other.data_ptr()


def _stack(name: str, stack: StackWeights, skipped: int) -> dict[str, Tensor]:
    assert stack.positions is not None
    positions = nn.functional.pad(stack.positions, (0, 0, skipped, 0))
    tensors = {f"{name}.embed_positions.weight": positions}
    norms = {"layernorm_embedding": stack.embedding_norm, "layer_norm": stack.top_norm}
    for place, norm in norms.items():
        tensors |= {} if norm is None else _norm(f"{name}.{place}", norm)
    for number, (*attentions, feed_forward) in enumerate(stack.layers):
        layer = f"{name}.layers.{number}"
        for kind, attention in zip(("self_attn", "encoder_attn"), attentions, strict=False):
            tensors |= _sublayer(f"{layer}.{kind}", attention)
            tensors |= _norm(f"{layer}.{kind}_layer_norm", attention.norm)
        tensors |= _sublayer(layer, feed_forward)
        tensors |= _norm(f"{layer}.final_layer_norm", feed_forward.norm)
    return tensors


def _sublayer(prefix: str, sublayer: SublayerWeights) -> dict[str, Tensor]:
    tensors = {}
    for name, (weight, bias) in sublayer.maps.items():
        tensors[f"{prefix}.{NAMES[name]}.weight"] = weight
        zeros = weight.new_zeros(len(weight))
        tensors[f"{prefix}.{NAMES[name]}.bias"] = zeros if bias is None else bias
    return tensors


def _norm(prefix: str, norm: NormWeights | None) -> dict[str, Tensor]:
    assert norm is not None
    return {f"{prefix}.weight": norm.weight, f"{prefix}.bias": norm.bias}


def _configuration(
    recipe: Recipe, source: int, target: int, *, shared: bool, tied: bool
) -> dict[str, Any]:
    model, dropout = recipe.model, recipe.model.dropout
    return {
        "architectures": [family(model).name],
        "model_type": family(model).type,
        "vocab_size": source,
        "decoder_vocab_size": target,
        "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": tied,
        "d_model": model.width_of("decoder"),
        "encoder_layers": model.encoder.depth,
        "decoder_layers": model.decoder.depth,
        "encoder_attention_heads": model.encoder.heads,
        "decoder_attention_heads": model.decoder.heads,
        "encoder_ffn_dim": model.encoder.feed_forward,
        "decoder_ffn_dim": model.decoder.feed_forward,
        "max_position_embeddings": POSITIONS,
        "activation_function": model.activation,
        "scale_embedding": model.embeddings.scale == "sqrt_width",
        "dropout": dropout.residual,
        "attention_dropout": dropout.attention,
        "activation_dropout": dropout.activation,
        "is_encoder_decoder": True,
        **_ids(model),
        "dtype": "float32",
    }


def _generation(recipe: Recipe, fillers: Sequence[int]) -> dict[str, Any]:
    """Our search as options of `generate`: the same rules, with one length limit for a batch."""
    decoding = recipe.decoding
    factor, constant = decoding.max_length_factor, decoding.max_length_constant
    return {
        "num_beams": decoding.beam,
        "do_sample": False,
        "early_stopping": decoding.stop == "full",
        "length_penalty": 0.0 if decoding.lenpen_form == "none" else decoding.lenpen,
        "min_new_tokens": 1,
        "max_new_tokens": min(int(decoding.max_source_tokens * factor) + constant, POSITIONS - 1),
        "suppress_tokens": [PAD, *([] if decoding.allow_unk else [UNK]), *fillers],
        **_ids(recipe.model),
    }


def _ids(model: Model) -> dict[str, Any]:
    return {
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "bos_token_id": None,
        "decoder_start_token_id": PAD if model.embeddings.start == "pad" else EOS,
        "forced_eos_token_id": EOS,
    }


def _marian_tokenizer(folder: Path, pipeline: TextPipeline) -> None:
    """The SentencePiece models of both sides, and the ids of pieces."""
    source, target = pipeline.source, pipeline.target
    for side, name in ((source, "source.spm"), (target, "target.spm")):
        assert isinstance(side.model, SentencePiece)
        (folder / name).write_bytes(side.model.content)
    separate = source.vocabulary != target.vocabulary
    names = ("vocab.json", "target_vocab.json") if separate else ("vocab.json",)
    for name, side in zip(names, (source, target), strict=False):
        ids = {token: id for id, token in enumerate(side.vocabulary.tokens)}
        _write(folder / name, ids)
    about = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": separate,
        "source_lang": source.language,
        "target_lang": target.language,
        "pad_token": SPECIALS[PAD],
        "eos_token": SPECIALS[EOS],
        "unk_token": SPECIALS[UNK],
        "model_max_length": POSITIONS,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    _write(folder / "tokenizer_config.json", about)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
