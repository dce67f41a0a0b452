"""Attention layers against torch's own, in parallel and step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.cache import CacheIndex
from nmtdeep.model.layers.context import Context

SENTENCES, HEADS, QUERIES, KEYS, SIZE = 2, 2, 4, 4, 3
WIDTH = HEADS * SIZE
REAL = torch.tensor([[True, True, True, True], [True, True, False, False]])
MASK = REAL[:, None, None, :]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def torch_layer(weight: Tensor, bias: Tensor, output: nn.Linear) -> nn.MultiheadAttention:
    layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(weight)
        layer.in_proj_bias.copy_(bias)
        layer.out_proj.weight.copy_(output.weight)
        layer.out_proj.bias.copy_(output.bias)
    return layer


def randomized(module: nn.Module) -> nn.Module:
    module.double()
    for number, parameter in enumerate(module.parameters()):
        parameter.data = random(*parameter.shape, seed=100 + number)
    return module


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_is_torchs_layer(causal: bool) -> None:
    ours = SelfAttention(WIDTH, HEADS, causal=causal)
    randomized(ours)
    theirs = torch_layer(ours.qkv.weight, ours.qkv.bias, ours.output)
    x, context = random(SENTENCES, QUERIES, WIDTH, seed=5), Context(mask=MASK)
    hidden = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    expected, weights = theirs(
        *(x, x, x),
        key_padding_mask=~REAL,
        attn_mask=hidden if causal else None,
        average_attn_weights=False,
    )
    assert_close(ours(x, context), expected, rtol=0, atol=1e-12)
    assert_close(ours.weights(x, context), weights, rtol=0, atol=1e-12)


def test_cross_attention_is_torchs_layer() -> None:
    ours = CrossAttention(WIDTH, HEADS)
    randomized(ours)
    weight = torch.cat((ours.query.weight, ours.key_value.weight))
    theirs = torch_layer(weight, torch.cat((ours.query.bias, ours.key_value.bias)), ours.output)
    x, memory = random(SENTENCES, 3, WIDTH, seed=6), random(SENTENCES, KEYS, WIDTH, seed=7)
    expected, weights = theirs(
        x, memory, memory, key_padding_mask=~REAL, average_attn_weights=False
    )
    context = Context(memory=memory, memory_mask=MASK)
    assert_close(ours(x, context), expected, rtol=0, atol=1e-12)
    assert_close(ours.weights(x, context), weights, rtol=0, atol=1e-12)


def test_cross_attention_serves_all_hypotheses_of_a_sentence_from_one_projection() -> None:
    ours = CrossAttention(WIDTH, HEADS)
    randomized(ours)
    memory = random(SENTENCES, KEYS, WIDTH, seed=8)
    context = Context(memory=memory, memory_mask=MASK)
    state = ours.start(context)
    rows = random(SENTENCES, 3, WIDTH, seed=9)
    copied = Context(
        memory=memory.repeat_interleave(3, dim=0), memory_mask=MASK.repeat_interleave(3, dim=0)
    )
    alone = ours(rows.view(-1, 1, WIDTH), copied).view(rows.shape)
    assert_close(ours(rows, Context(), state), alone, rtol=0, atol=1e-13)
    state.select(torch.tensor([4, 3, 3]), torch.tensor([1]))
    last = rows[1:, [1, 0, 0]]
    assert_close(ours(last, Context(), state), alone[1:, [1, 0, 0]], rtol=0, atol=1e-13)


def test_cross_attention_without_a_memory_is_an_error() -> None:
    with pytest.raises(ValueError, match="memory"):
        CrossAttention(WIDTH, HEADS)(random(1, 1, WIDTH), Context())


def test_self_attention_step_by_step_follows_reordered_hypotheses() -> None:
    ours = SelfAttention(WIDTH, HEADS, causal=True)
    randomized(ours)
    x = random(3, 4, WIDTH, seed=11)  # hypotheses of one sentence, by position
    index = CacheIndex(x[:1])
    state = ours.start(Context(index=index))

    def step(place: int) -> Tensor:
        index.add(3)
        return ours(x[None, :, place], Context(), state)[0]

    for place in range(2):
        step(place)
    order = torch.tensor([2, 0, 2])
    index.select(order, None)
    state.select(order, None)
    changed = torch.cat((x[order, :2], x[:, 2:]), dim=1)
    parallel = ours(changed, Context())
    for place in (2, 3):
        assert_close(step(place), parallel[:, place], rtol=0, atol=1e-13)
    assert not torch.allclose(ours(x, Context())[:, 3], parallel[:, 3])


def test_self_attention_step_by_step_without_an_index_is_an_error() -> None:
    with pytest.raises(ValueError, match="cache index"):
        SelfAttention(WIDTH, HEADS, causal=True).start(Context())


def test_under_autocast_the_layer_stays_close_to_fp32() -> None:
    ours = SelfAttention(WIDTH, HEADS, causal=False).float()
    x = random(SENTENCES, QUERIES, WIDTH, seed=12).float()
    exact = ours(x, Context(mask=MASK))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = ours(x, Context(mask=MASK))
    assert rough.dtype == torch.bfloat16
    error = (rough.float() - exact).abs().max()
    assert 0 < error < 0.02 * exact.abs().max()
