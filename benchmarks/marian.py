"""Hugging Face's MarianMT with our weights: training and `generate`. Post-norm only, as it is."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.recipe import Recipe
from nmtdeep.model.layers.positions import sinusoids
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS, PAD

POSITIONS = 1024
SUBLAYERS = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}
LEAVES = {"output": "out_proj", "inner": "fc1", "outer": "fc2"}
PACKED = {"qkv": "qkv", "query": "q", "key_value": "kv"}


class Marian(nn.Module):
    """Ids to logits."""

    def __init__(self, model: MarianMTModel, pad: int) -> None:
        super().__init__()
        self.model = model
        self.pad = pad

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model(
            input_ids=source,
            attention_mask=source != self.pad,
            decoder_input_ids=target,
            use_cache=False,
        ).logits


def build(recipe: Recipe, ours: Transformer, *, dropout: float, attention: str) -> Marian:
    """The same shape with the same weights.

    Args:
        attention: its own kernel, sdpa or eager.
    """
    weight = ours.output.weight
    model = MarianMTModel(configuration(recipe, weight.shape[0], dropout, attention))
    model.to(weight.device, weight.dtype)
    network = Marian(model, ours.pad)
    ours_renamed = renamed(dict(ours.named_parameters()))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name.endswith("embed_positions.weight"):
                parameter.copy_(sinusoids(0, POSITIONS, weight.shape[1]))
            else:
                parameter.copy_(ours_renamed.pop(name))
    if ours_renamed:
        raise ValueError(f"MarianMT has no place for {', '.join(ours_renamed)}")
    return network


def configuration(recipe: Recipe, types: int, dropout: float, attention: str) -> MarianConfig:
    model = recipe.model
    if {model.encoder.residual.type, model.decoder.residual.type} != {"post_norm"}:
        raise ValueError("MarianMT is post-norm: set residual: post_norm")
    if model.norm_epsilon != nn.LayerNorm(1).eps:
        raise ValueError("MarianMT's layer norms have torch's epsilon: set norm_epsilon: 1e-5")
    return MarianConfig(
        vocab_size=types,
        d_model=model.width,
        encoder_layers=model.encoder.depth,
        decoder_layers=model.decoder.depth,
        encoder_attention_heads=model.encoder.heads,
        decoder_attention_heads=model.decoder.heads,
        encoder_ffn_dim=model.encoder.feed_forward,
        decoder_ffn_dim=model.decoder.feed_forward,
        max_position_embeddings=POSITIONS,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=model.dropout.attention,
        activation_dropout=model.dropout.activation,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=EOS,
        forced_eos_token_id=EOS,
        attn_implementation=attention,
    )


def renamed(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, or their gradients, under MarianMT's names."""
    theirs = {"model.model.shared.weight": ours["source_embedding.weight"]}
    name = r"(encoder|decoder)\.layers\.(\d+)\.sublayers\.(\d+)\.(?:sublayer\.)?(\w+)\.(\w+)"
    for key, value in ours.items():
        if not (match := re.fullmatch(name, key)):
            continue
        stack, layer, number, leaf, kind = match.groups()
        place, sublayer = f"model.model.{stack}.layers.{layer}", SUBLAYERS[stack][int(number)]
        if leaf == "norm":
            theirs[f"{place}.{sublayer}_layer_norm.{kind}"] = value
        elif leaf in PACKED:
            letters = PACKED[leaf]
            for letter, part in zip(letters, value.chunk(len(letters)), strict=True):
                theirs[f"{place}.{sublayer}.{letter}_proj.{kind}"] = part
        else:
            within = "" if sublayer == "final" else f"{sublayer}."
            theirs[f"{place}.{within}{LEAVES[leaf]}.{kind}"] = value
    return theirs


@torch.inference_mode()
def generate(
    marian: Marian, sources: Sequence[Sequence[int]], settings: DecodingOptions, *, batch: int
) -> list[tuple[int, ...]]:
    """Ids of the best translations, end of sentence included; sorted by length, `batch` at a time.

    Our rules in its words: a divisor len^a, done with `beam` finished hypotheses, no end as first
    token, no padding. Its length limit is one for a batch, that of the longest source.
    """
    device = next(marian.parameters()).device
    order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
    translations: list[tuple[int, ...]] = [()] * len(sources)
    for first in range(0, len(order), batch):
        chosen = order[first : first + batch]
        longest = max(len(sources[index]) for index in chosen)
        ids = torch.full((len(chosen), longest), PAD)
        for row, index in zip(ids, chosen, strict=True):
            row[: len(sources[index])] = torch.tensor(sources[index])
        ids = ids.to(device)
        out = marian.model.generate(
            ids,
            attention_mask=ids != PAD,
            num_beams=settings.beam,
            do_sample=False,
            length_penalty=settings.lenpen if settings.lenpen_form == "length" else 0.0,
            early_stopping=True,
            min_new_tokens=1,
            max_new_tokens=int(longest * settings.max_length_factor) + settings.max_length_constant,
            suppress_tokens=[PAD],
        )
        for index, row in zip(chosen, out[:, 1:].tolist(), strict=True):
            translations[index] = tuple(row[: row.index(EOS) + 1] if EOS in row else row)
    return translations
