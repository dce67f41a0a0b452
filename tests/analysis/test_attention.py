"""Attention maps: applied to the values, they equal the output of the layer."""

from typing import Any

import pytest
import torch
from torch.testing import assert_close

from nmtdeep.analysis.attention import attention_maps
from nmtdeep.errors import UserError

SOURCE, TARGET = torch.tensor([5, 6, 7, 1]), torch.tensor([1, 8, 9])
RELATIVE = {"type": "relative", "clip": 2}


@pytest.mark.parametrize("positions", ["sinusoidal", RELATIVE], ids=["sinusoidal", "relative"])
@pytest.mark.parametrize("of", ["encoder", "decoder", "cross"])
@torch.inference_mode()
def test_the_values_weighted_by_a_map_are_the_output_of_the_layer(of, positions, tiny_model):
    model = tiny_model(positions=positions)
    layer = list(model.encoder if of == "encoder" else model.decoder)[1]
    attention = list(layer)[1 if of == "cross" else 0].sublayer
    seen: dict[str, Any] = {}
    handle = attention.register_forward_hook(
        lambda _, inputs, output: seen.update(x=inputs[0], output=output)
    )
    model(SOURCE[None], TARGET[None])
    handle.remove()
    if of == "cross":
        values = attention.key_value(model.encode(SOURCE[None]).memories[1])[0, :, 8:]
    else:
        values = attention.qkv(seen["x"])[0, :, 16:]
    maps = attention_maps(model, SOURCE, TARGET, of)[1]
    read = maps @ values.view(-1, 2, 4).transpose(0, 1)
    assert_close(attention.output(read.transpose(0, 1).flatten(1)), seen["output"][0])
    assert_close(maps.sum(dim=2), torch.ones(maps.shape[:2], dtype=torch.float64))


@pytest.mark.parametrize("average", ["average", "self_attention"])
def test_merged_attention_shows_its_cross_attention(tiny_model, average):
    merged = {"type": "merged_attention"}
    if average != "average":
        merged["average"] = average
    model = tiny_model(sublayers=(merged, "feed_forward"))
    maps = attention_maps(model, SOURCE, TARGET, "cross")
    assert_close(maps.sum(dim=3), torch.ones(2, 2, 3, dtype=torch.float64))
    if average == "self_attention":
        decoder = attention_maps(model, SOURCE, TARGET, "decoder")
        assert float(decoder[:, :, 0, 1:].abs().max()) == 0
    else:
        with pytest.raises(UserError, match=r"layer 1 has no .*weight 1/t.*--of cross"):
            attention_maps(model, SOURCE, TARGET, "decoder")
