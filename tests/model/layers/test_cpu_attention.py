"""Attention with written-out gradients against torch's own, and against autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from nmtdeep.model.layers import cpu_attention
from nmtdeep.model.layers.cpu_attention import VECTOR, attention

SENTENCES, HEADS, SIZE = 3, 2, 5
WIDTH = HEADS * SIZE
FORMS = {"together": (3,), "memory": (1, 2), "apart": (1, 1, 1)}
EXACT = {"rtol": 0, "atol": 1e-12}


def packed(form: str, queries: int, keys: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(queries)
    sizes = [(queries if number == 0 else keys, parts) for number, parts in enumerate(FORMS[form])]
    return [
        torch.randn(SENTENCES, positions, parts * WIDTH, generator=generator, dtype=torch.float64)
        for positions, parts in sizes
    ]


def torchs(*given: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    parts = [part for x in given for part in x.split(WIDTH, dim=2)]
    q, k, v = (part.unflatten(2, (HEADS, SIZE)).transpose(1, 2) for part in parts)
    if causal:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
        mask = seen if mask is None else seen & mask
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)


def padding(keys: int) -> Tensor:
    lengths = torch.tensor([keys, max(1, keys - 2), 1])
    return (torch.arange(keys) < lengths[:, None])[:, None, None, :]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 4, VECTOR - 1, VECTOR, 2 * VECTOR + 1])
@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients_are_torchs(
    form: str, length: int, causal: bool, masked: bool
) -> None:
    given = [x.requires_grad_() for x in packed(form, length, length)]
    mask = padding(length) if masked else None
    ours = attention(*given, heads=HEADS, mask=mask, causal=causal, dropout=0.0)
    theirs = torchs(*given, mask=mask, causal=causal)
    assert_close(ours, theirs, **EXACT)
    towards = torch.randn(ours.shape, generator=torch.Generator().manual_seed(9)).double()
    for one, other in zip(
        torch.autograd.grad(ours, given, towards),
        torch.autograd.grad(theirs, given, towards),
        strict=True,
    ):
        assert_close(one, other, **EXACT)


@pytest.mark.parametrize("form", ["memory", "apart"])
def test_queries_and_keys_may_differ_in_number(form: str) -> None:
    given = packed(form, 3, 7)
    ours = attention(*given, heads=HEADS, mask=padding(7), causal=False, dropout=0.0)
    assert_close(ours, torchs(*given, mask=padding(7), causal=False), **EXACT)


def test_dropout_falls_on_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = torch.rand(SENTENCES * HEADS, 4, 4, dtype=torch.float64).round() * 2
    monkeypatch.setattr(cpu_attention, "noise", lambda shape, probability, dtype: noise)
    (x,) = given = [one.requires_grad_() for one in packed("together", 4, 4)]
    ours = attention(x, heads=HEADS, mask=None, causal=False, dropout=0.5)
    q, k, v = (
        part.unflatten(2, (HEADS, SIZE)).transpose(1, 2).flatten(0, 1)
        for part in x.split(WIDTH, dim=2)
    )
    weights = (q @ k.transpose(1, 2) / SIZE**0.5).softmax(dim=2) * noise
    theirs = (weights @ v).unflatten(0, (SENTENCES, HEADS)).transpose(1, 2).flatten(2)
    assert_close(ours, theirs, **EXACT)
    towards = torch.randn_like(ours)
    one, other = (torch.autograd.grad(y, given, towards) for y in (ours, theirs))
    assert_close(one, other, **EXACT)


def test_bf16_goes_in_and_out_and_is_fp32_in_between() -> None:
    given = [x.bfloat16() for x in packed("together", 6, 6)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = attention(*given, heads=HEADS, mask=None, causal=True, dropout=0.0)
    exact = torchs(*(x.double() for x in given), mask=None, causal=True)
    assert ours.dtype == torch.bfloat16
    # Only the result is rounded: to 8 bits, half a unit in the last of them.
    assert_close(ours.double(), exact, rtol=2**-8, atol=1e-6)
