"""Embeddings and the output matrix by hand."""

from __future__ import annotations

import math

import torch
from torch import nn

from nmtdeep.model.layers.embedding import OutputProjection, TokenEmbedding
from nmtdeep.model.layers.positions import Sinusoidal

TABLE = [[9.0] * 4, [1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.5, 2.0]]


def parameter(values: list) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_scaled_row_plus_bias_plus_position() -> None:
    bias = parameter([10.0, 20.0, 30.0, 40.0])
    embedding = TokenEmbedding(parameter(TABLE), Sinusoidal(4), bias=bias, dropout=0.0)
    out = embedding(torch.tensor([[1, 2]]), 5)
    for place, (row, position) in enumerate(((1, 5), (2, 6))):
        waves = [math.sin(position), math.sin(position * 1e-4)]
        waves += [math.cos(position), math.cos(position * 1e-4)]
        # The width is 4, its root 2.
        expected = [
            2 * TABLE[row][i] + bias.tolist()[i] + wave
            for i, wave in zip(range(4), waves, strict=True)
        ]
        assert torch.allclose(out[0, place], torch.tensor(expected, dtype=torch.float64))


def test_dropout_is_on_the_sum() -> None:
    embedding = TokenEmbedding(parameter(TABLE), nn.Identity(), bias=None, dropout=0.5)
    embedding.positions.forward = lambda x, start: x + 1
    torch.manual_seed(1)
    out = embedding.train()(torch.ones(1, 100, dtype=torch.int64))
    # Twice the row, plus one, doubled or gone.
    assert [sorted(set(column)) for column in out[0].T.tolist()] == [
        [0, 2 * (2 * value + 1)] for value in TABLE[1]
    ]


def test_logits_are_dot_products_with_the_rows() -> None:
    output = OutputProjection(parameter(TABLE))
    x = torch.tensor([[1.0, 1.0, 0.0, -1.0]], dtype=torch.float64)
    assert output(x).tolist() == [[9.0, -1.0, -3.0]]
