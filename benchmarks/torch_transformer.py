"""torch's own nn.Transformer around one table, with our weights and our placement of dropout."""

import math
import re

import torch
from naive import sinusoids
from torch import Tensor, nn
from torch.nn.functional import linear
from weights import plain

from nmtdeep.config.recipe import Recipe
from nmtdeep.model.transformer import Transformer

PARTS = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
LEAVES = {
    "inputs.weight": "in_proj_weight",
    "inputs.bias": "in_proj_bias",
    "output.weight": "out_proj.weight",
    "output.bias": "out_proj.bias",
}


class TorchTransformer(nn.Module):
    """Ids to logits; one table for source, target and output."""

    table: Tensor

    def __init__(self, recipe: Recipe, types: int, *, dropout: float, pad: int) -> None:
        super().__init__()
        model = recipe.model
        self.pad = pad
        self.embedding = nn.Embedding(types, model.width)
        self.register_buffer("table", sinusoids(1024, model.width), persistent=False)
        self.dropout = nn.Dropout(dropout)
        self.transformer = nn.Transformer(
            model.width,
            model.encoder.heads,
            model.encoder.depth,
            model.decoder.depth,
            model.encoder.feed_forward,
            dropout,
            layer_norm_eps=model.norm_epsilon,
            batch_first=True,
            norm_first=model.encoder.residual.type == "pre_norm",
        )
        for stack in (self.transformer.encoder, self.transformer.decoder):
            if model.encoder.residual.type == "post_norm":
                stack.norm = None  # the last layer ends with one
            for layer in stack.layers:
                # nn.Transformer drops attention weights and activations too; we do not, here.
                layer.dropout.p = model.dropout.activation
                for attention in (layer.self_attn, getattr(layer, "multihead_attn", None)):
                    if attention is not None:
                        attention.dropout = model.dropout.attention

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(x + self.table[: ids.shape[1]].to(x.dtype))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == self.pad
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return linear(hidden, self.embedding.weight)


def build(recipe: Recipe, ours: Transformer, *, dropout: float) -> TorchTransformer:
    """The same shape with the same weights."""
    weight = ours.output.weight
    network = TorchTransformer(recipe, weight.shape[0], dropout=dropout, pad=ours.pad)
    network.to(weight.device, weight.dtype)
    network.load_state_dict(renamed(dict(ours.named_parameters())))
    return network


def renamed(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters, or their gradients, under nn.Transformer's names."""
    theirs = {}
    for name, value in plain(ours).items():
        match = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(\w+)\.(.+)", name)
        if match is None:
            stem = re.sub(r"^(\w+coder)_norm", r"transformer.\1.norm", name)
            theirs[stem] = value
            continue
        stack, layer, part, leaf = match.groups()
        if part in PARTS:
            place = f"{PARTS[part]}.{LEAVES[leaf]}"
        elif part == "norms":
            place = f"norm{int(leaf[0]) + 1}{leaf[1:]}"
        else:
            place = f"linear{1 if leaf[0] == '0' else 2}{leaf[1:]}"
        theirs[f"transformer.{stack}.layers.{layer}.{place}"] = value
    return theirs
