"""Layers on a device that is no CPU compile whole, once for all shapes of batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo

from nmtdeep.config.model import Model
from nmtdeep.model.build import build

from .variants import VARIANTS

TYPES = 20
# Sentences, source and target positions of batches.
SHAPES = [(8, 10, 11), (6, 14, 12), (5, 9, 20), (12, 7, 7), (3, 31, 33)]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_layers_of_every_variant_compile_whole(
    tiny_config: Callable[..., Model], name: str
) -> None:
    """`torch.device("meta")` takes the way of a GPU through the model, without any memory."""
    compiled = 0

    def count(graph: Any, inputs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        return graph.forward

    torch._dynamo.reset()
    with torch.device("meta"):
        network = build(tiny_config(**VARIANTS[name]), source_types=TYPES, target_types=TYPES)
        network.train()
        for layer in (*network.encoder, *network.decoder):
            layer.compile(dynamic=True, fullgraph=True, backend=count)
        with mock.patch("torch.autocast", lambda *_, **__: nullcontext()):  # meta has none
            for sentences, *lengths in SHAPES:
                network(*(torch.zeros(sentences, length, dtype=torch.long) for length in lengths))
    assert compiled <= 4
