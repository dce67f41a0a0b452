"""Initialisers: functions over a finished model that set values and nothing else.

An initialiser walks the model's structure by type, never by parameter names, and fails with the
names of the parameters that it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.embedding import OutputProjection, TokenEmbedding
from nmtdeep.model.layers.feed_forward import FeedForward
from nmtdeep.model.transformer import Transformer


def glorot(model: Transformer, *, gain: float = 1.0, seed: int = 0) -> None:
    """Glorot uniform: W ~ U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)); E ~ N(0, 1/d).

    Query, key and value count as one d x 3d matrix, so their bound is gain sqrt(6 / 4d), in
    cross-attention too (fairseq, and the release of Wang et al. 2019). Biases 0, norms (1, 0), the
    padding row 0; the embedding bias U(-sqrt(3/d), sqrt(3/d)) (the release of Zhang et al. 2019).

    Raises:
        ValueError: if a parameter of the model is of no known kind.
    """
    generator = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    for parameter, value in _glorot_values(model, gain, generator):
        if id(parameter) not in done:
            with torch.no_grad():
                parameter.copy_(value)
            done.add(id(parameter))
    missed = [name for name, parameter in model.named_parameters() if id(parameter) not in done]
    if missed:
        raise ValueError(f"glorot does not know the parameters {', '.join(missed)}")


def _uniform(like: Tensor, bound: float, generator: torch.Generator) -> Tensor:
    return torch.empty(like.shape).uniform_(-bound, bound, generator=generator)


def _glorot_values(
    model: Transformer, gain: float, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    for module in model.modules():
        match module:
            case SelfAttention():
                width = module.qkv.in_features
                yield from _linear(module.qkv, width + 3 * width, gain, generator)
                yield from _linear(module.output, width + width, gain, generator)
            case CrossAttention():
                width = module.query.in_features
                for part in (module.query, module.key_value):
                    yield from _linear(part, width + 3 * width, gain, generator)
                yield from _linear(module.output, width + width, gain, generator)
            case FeedForward():
                for part in (module.inner, module.outer):
                    yield from _linear(part, sum(part.weight.shape), gain, generator)
            case nn.LayerNorm():
                yield module.weight, torch.ones(module.weight.shape)
                yield module.bias, torch.zeros(module.bias.shape)
            case TokenEmbedding():
                yield module.weight, _table(module.weight, model.pad, generator)
                if module.bias is not None:
                    bound = math.sqrt(3 / module.bias.numel())
                    yield module.bias, _uniform(module.bias, bound, generator)
            case OutputProjection():
                yield module.weight, _table(module.weight, model.pad, generator)


def _linear(
    linear: nn.Linear, fans: int, gain: float, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    bound = gain * math.sqrt(6 / fans)
    yield linear.weight, _uniform(linear.weight, bound, generator)
    if linear.bias is not None:
        yield linear.bias, torch.zeros(linear.bias.shape)


def _table(weight: Tensor, pad: int, generator: torch.Generator) -> Tensor:
    table = torch.empty(weight.shape).normal_(0, weight.shape[1] ** -0.5, generator=generator)
    table[pad] = 0
    return table
