"""A model that computes as its 8-bit form will: weights and inputs rounded in every product."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.embedding import TokenEmbedding
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.rounding import Rounding
from nmtdeep.model.transformer import Transformer


def round_products(model: Transformer) -> None:
    """Round every linear map and table of embeddings from now on, each input by its own range."""
    for module, rounding in roundings(model):
        module.rounding = rounding


def roundings(model: Transformer) -> Iterator[tuple[Linear | TokenEmbedding, Rounding]]:
    """Linear maps and embeddings, and how each is rounded: projections have a factor each."""
    blocks: dict[nn.Module, int] = {}
    for module in model.modules():
        match module:
            case SelfAttention(qkv=qkv):
                blocks[qkv] = 3
            case CrossAttention(key_value=key_value):
                blocks[key_value] = 2
            case Linear() | TokenEmbedding():
                yield module, Rounding(blocks.get(module, 1))
