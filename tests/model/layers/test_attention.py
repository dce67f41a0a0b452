"""Attention against a loop over positions and heads, and against torch's own layer."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from nmtdeep.model.layers.attention import CrossAttention, SelfAttention, attend
from nmtdeep.model.layers.context import Context
from nmtdeep.model.layers.slots import Slots

SENTENCES, HEADS, QUERIES, KEYS, SIZE = 2, 2, 4, 4, 3
WIDTH = HEADS * SIZE
REAL = torch.tensor([[True, True, True, True], [True, True, False, False]])
MASK = REAL[:, None, None, :]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def naive(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, causal: bool) -> Tensor:
    """Eq. 1 of Vaswani et al. 2017, number by number."""
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=torch.float64)
    for s, h, i in product(*map(range, q.shape[:3])):
        seen = [
            j
            for j in range(k.shape[2])
            if (mask is None or bool(mask[s, 0, 0, j])) and not (causal and j > i)
        ]
        dots = [
            sum(a * b for a, b in zip(q[s, h, i].tolist(), k[s, h, j].tolist(), strict=True))
            for j in seen
        ]
        mass = [math.exp(dot / math.sqrt(q.shape[3])) for dot in dots]
        for j, part in zip(seen, mass, strict=True):
            out[s, h, i] += part / sum(mass) * v[s, h, j]
    return out


def heads(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (random(SENTENCES, HEADS, QUERIES, SIZE, seed=3 * seed + part) for part in range(3))
    return q, k, v


CASES = pytest.mark.parametrize(
    ("mask", "causal"),
    [(None, False), (MASK, False), (None, True), (MASK, True)],
    ids=["all", "padding", "causal", "both"],
)


@CASES
def test_attend_is_the_loop(mask: Tensor | None, causal: bool) -> None:
    q, k, v = heads(1)
    assert_close(
        attend(q, k, v, mask=mask, causal=causal, dropout=0.0),
        naive(q, k, v, mask=mask, causal=causal),
        rtol=0,
        atol=1e-14,
    )


@pytest.mark.parametrize(("mask", "causal"), [(None, False), (MASK, False), (None, True)])
def test_the_cpu_formula_is_the_kernel_of_a_gpu_backwards_too(
    mask: Tensor | None, causal: bool
) -> None:
    first = [part.requires_grad_() for part in heads(2)]
    second = [part.detach().clone().requires_grad_() for part in first]
    towards = random(SENTENCES, HEADS, QUERIES, SIZE, seed=9)
    ours = attend(*first, mask=mask, causal=causal, dropout=0.0)
    theirs = F.scaled_dot_product_attention(*second, attn_mask=mask, is_causal=causal)
    (ours * towards).sum().backward()
    (theirs * towards).sum().backward()
    assert_close(ours, theirs, rtol=0, atol=1e-14)
    for one, other in zip(first, second, strict=True):
        assert_close(one.grad, other.grad, rtol=0, atol=1e-14)


def test_bf16_loses_no_more_than_its_last_rounding() -> None:
    q, k, v = (part.to(torch.bfloat16) for part in heads(3))
    out = attend(q, k, v, mask=MASK, causal=False, dropout=0.0)
    exact = naive(q.double(), k.double(), v.double(), mask=MASK, causal=False)
    assert out.dtype == torch.bfloat16
    # bf16 keeps 8 bits: half a unit of the last is 2^-8 of the number at most. fp32 costs nothing.
    assert ((out.double() - exact).abs() <= 2**-8 * exact.abs() + 1e-6).all()


def test_dropped_weights_are_zero_or_scaled_and_keep_their_mean() -> None:
    q, k, _ = heads(4)
    # With the identity as values the output shows the weights themselves.
    eye = torch.eye(KEYS, dtype=torch.float64).expand(SENTENCES, HEADS, KEYS, KEYS)
    weights = attend(q, k, eye, mask=None, causal=False, dropout=0.0)
    torch.manual_seed(1)
    draws = torch.stack(
        [attend(q, k, eye, mask=None, causal=False, dropout=0.25) for _ in range(400)]
    )
    kept = draws != 0
    assert_close(draws[kept], (weights / 0.75).expand_as(draws)[kept], rtol=0, atol=1e-14)
    count = kept.numel()
    assert abs(int(kept.sum()) - 0.75 * count) < 5 * math.sqrt(0.75 * 0.25 * count)
    error = (draws.mean(dim=0) - weights).abs()
    assert (error < 5 * weights * math.sqrt(0.25 / 0.75 / 400)).all()


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
    x = random(SENTENCES, QUERIES, WIDTH, seed=5)
    hidden = torch.ones(QUERIES, QUERIES, dtype=torch.bool).triu(1)
    expected, _ = theirs(
        x, x, x, key_padding_mask=~REAL, attn_mask=hidden if causal else None, need_weights=False
    )
    assert_close(ours(x, Context(mask=MASK)), expected, rtol=0, atol=1e-12)


def test_cross_attention_is_torchs_layer() -> None:
    ours = CrossAttention(WIDTH, HEADS)
    randomized(ours)
    weight = torch.cat((ours.query.weight, ours.key_value.weight))
    theirs = torch_layer(weight, torch.cat((ours.query.bias, ours.key_value.bias)), ours.output)
    x, memory = random(SENTENCES, 3, WIDTH, seed=6), random(SENTENCES, KEYS, WIDTH, seed=7)
    expected, _ = theirs(x, memory, memory, key_padding_mask=~REAL, need_weights=False)
    context = Context(memory=memory, memory_mask=MASK)
    assert_close(ours(x, context), expected, rtol=0, atol=1e-12)


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


def test_cross_attention_without_a_memory_says_so() -> None:
    with pytest.raises(ValueError, match="memory"):
        CrossAttention(WIDTH, HEADS)(random(1, 1, WIDTH), Context())


def test_self_attention_step_by_step_follows_reordered_hypotheses() -> None:
    ours = SelfAttention(WIDTH, HEADS, causal=True)
    randomized(ours)
    x = random(3, 4, WIDTH, seed=11)  # hypotheses of one sentence, by position
    slots = Slots(x[:1])
    state = ours.start(Context(slots=slots))

    def step(place: int) -> Tensor:
        slots.add(3)
        return ours(x[None, :, place], Context(), state)[0]

    for place in range(2):
        step(place)
    order = torch.tensor([2, 0, 2])
    slots.select(order, None)
    state.select(order, None)
    changed = torch.cat((x[order, :2], x[:, 2:]), dim=1)
    parallel = ours(changed, Context())
    for place in (2, 3):
        assert_close(step(place), parallel[:, place], rtol=0, atol=1e-13)
    assert not torch.allclose(ours(x, Context())[:, 3], parallel[:, 3])


def test_self_attention_step_by_step_without_slots_says_so() -> None:
    with pytest.raises(ValueError, match="slots"):
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
