"""Layers compile whole, into few graphs that hold for batches of all shapes."""

from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
import torch
from model.choices import VARIANTS, connects_sublayers

from nmtdeep.model.build import build
from nmtdeep.model.kernels import gpu_dropout
from nmtdeep.packing import Packing

TYPES, BATCHES = 20, 5


def packed_ids(lengths):
    """Ids of sentences of these lengths, without numbers."""
    offsets, places, longest = Packing.of(lengths)
    ids = torch.zeros(1, len(places), dtype=torch.long)
    return ids, Packing(offsets.to("meta"), places.to("meta"), longest)


def graphs(model, *, packed):
    """How often a compiler would be called in a training with batches of several shapes.

    `torch.device("meta")` takes the way of a GPU through the model, without any memory.
    """
    compiled = []

    def compile_nothing(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch.compiler.reset()
    random = np.random.default_rng(1)
    with (
        torch.device("meta"),
        mock.patch("torch.autocast", lambda *_, **__: nullcontext()),
        mock.patch.object(gpu_dropout, "supports", lambda _: torch.compiler.is_compiling()),
    ):
        network = build(model, source_types=TYPES, target_types=TYPES).train()
        network.compile_layers(fullgraph=True, backend=compile_nothing)
        for _ in range(BATCHES):
            lengths = random.integers(2, 40, (2, random.integers(3, 20)))
            if packed:
                (source, of_source), (target, of_target) = map(packed_ids, lengths)
                encoded, _ = network.encode_deeply(source, of_source)
                network.decode(target, encoded, of_target)
            else:
                shapes = [(lengths.shape[1], int(side.max())) for side in lengths]
                network(*(torch.zeros(shape, dtype=torch.long) for shape in shapes))
    return len(compiled)


@pytest.mark.parametrize(
    ("combination", "expected"), [pytest.param("residual", 2, marks=pytest.mark.slow), ("dlcl", 3)]
)
def test_layers_of_a_stack_share_a_graph(tiny_config, combination, expected):
    """And so do all norms of layer combinations."""
    model = tiny_config(width=64, depth=6, combinations=(combination, combination))
    assert graphs(model, packed=True) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VARIANTS)[::4])  # all take minutes
def test_layers_of_variants_compile_whole(tiny_config, name):
    choice = VARIANTS[name]
    # Each sublayer that a combination connects has a graph of its own, and norms have one.
    limit = 8 if any(map(connects_sublayers, choice["combinations"])) else 5
    packed = "relative" not in str(choice["positions"])
    assert graphs(tiny_config(**choice, width=64), packed=packed) <= limit
