"""Attention maps: rows that sum to 1, a naive softmax, and what the layers really read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from nmtdeep.analysis.attention import attention_maps
from nmtdeep.errors import UserError

SOURCE, TARGET = torch.tensor([5, 6, 7, 1]), torch.tensor([1, 8, 9])


def naive(q: Tensor, k: Tensor, heads: int, *, causal: bool) -> list[list[list[float]]]:
    """`(heads, queries, keys)` of `(positions, width)` each."""
    depth = q.shape[1] // heads
    maps = []
    for head in range(heads):
        part = slice(head * depth, (head + 1) * depth)
        rows = []
        for at, one in enumerate(q[:, part].tolist()):
            keys = k[:, part].tolist()
            scores = [
                math.exp(sum(map(math.prod, zip(one, key, strict=True))) / math.sqrt(depth))
                for place, key in enumerate(keys)
                if place <= at or not causal
            ]
            shares = [score / sum(scores) for score in scores]
            rows.append(shares + [0.0] * (len(keys) - len(shares)))
        maps.append(rows)
    return maps


def test_self_attention_equals_a_naive_softmax(tiny_model: Callable[..., Any]) -> None:
    model = tiny_model()
    for of, stack, x in (
        ("encoder", model.encoder, model.source_embedding(SOURCE[None])),
        ("decoder", model.decoder, model.target_embedding(TARGET[None])),
    ):
        wrapper = next(iter(next(iter(stack))))
        q, k, _ = wrapper.sublayer.qkv(wrapper.norm(x))[0].chunk(3, dim=-1)
        expected = naive(q, k, 2, causal=of == "decoder")
        maps = attention_maps(model, SOURCE, TARGET, of)[0]
        torch.testing.assert_close(maps, torch.tensor(expected, dtype=torch.float64))


@torch.inference_mode()
def test_cross_attention_is_what_the_layer_read(tiny_model: Callable[..., Any]) -> None:
    model = tiny_model()
    memory = model.encode(SOURCE[None]).memories[1]
    _, cross, _ = list(model.decoder)[1]
    seen = {}
    handle = cross.sublayer.register_forward_hook(
        lambda module, inputs, output: seen.update(x=inputs[0], gave=output)
    )
    maps = attention_maps(model, SOURCE, TARGET, "cross")
    handle.remove()
    assert maps.shape == (2, 2, 3, 4)
    torch.testing.assert_close(maps.sum(dim=3), torch.ones(2, 2, 3, dtype=torch.float64))
    values = cross.sublayer.key_value(memory)[0, :, 8:].view(4, 2, 4).transpose(0, 1)
    read = (maps[1] @ values).transpose(0, 1).flatten(1)
    torch.testing.assert_close(cross.sublayer.output(read), seen["gave"][0])


def test_relative_positions_count(tiny_model: Callable[..., Any]) -> None:
    model = tiny_model(positions={"type": "relative", "clip": 2})
    maps = attention_maps(model, SOURCE, TARGET, "encoder")[0, 0]
    wrapper = next(iter(next(iter(model.encoder))))
    x = wrapper.norm(model.source_embedding(SOURCE[None]))
    q, k, _ = wrapper.sublayer.qkv(x)[0].detach().chunk(3, dim=-1)
    table = wrapper.sublayer.relative.keys.detach()
    for at in range(4):
        scores = [
            float(q[at, :4] @ (k[key, :4] + table[max(-2, min(2, key - at)) + 2])) / 2
            for key in range(4)
        ]
        total = sum(map(math.exp, scores))
        for key, score in enumerate(scores):
            assert float(maps[at, key]) == pytest.approx(math.exp(score) / total)


@pytest.mark.parametrize("average", ["average", "self_attention"])
def test_merged_attention_shows_its_cross_attention(
    tiny_model: Callable[..., Any], average: str
) -> None:
    merged = {"type": "merged_attention"}
    if average != "average":
        merged["average"] = average
    model = tiny_model(sublayers=(merged, "feed_forward"))
    maps = attention_maps(model, SOURCE, TARGET, "cross")
    torch.testing.assert_close(maps.sum(dim=3), torch.ones(2, 2, 3, dtype=torch.float64))
    if average == "self_attention":
        decoder = attention_maps(model, SOURCE, TARGET, "decoder")
        assert float(decoder[:, :, 0, 1:].abs().max()) == 0
    else:
        with pytest.raises(UserError, match=r"layer 1 has no .*weight 1/t.*--of cross"):
            attention_maps(model, SOURCE, TARGET, "decoder")


def test_average_attention_is_refused_with_its_reason(tiny_model: Callable[..., Any]) -> None:
    model = tiny_model(sublayers=("average_attention", "cross_attention", "feed_forward"))
    assert attention_maps(model, SOURCE, TARGET, "cross").shape == (2, 2, 3, 4)
    with pytest.raises(UserError, match="mean of all positions so far"):
        attention_maps(model, SOURCE, TARGET, "decoder")
