"""Dropout of an embedding by hand; tests/model/test_transformer.py has the rest of the formula."""

import pytest
import torch
from torch import nn

from nmtdeep.model.layers.embedding import TokenEmbedding

TABLE = [[9.0] * 4, [1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.5, 2.0]]


def parameter(values):
    return nn.Parameter(torch.tensor(values, dtype=torch.float64))


def test_dropout_is_on_the_sum():
    embedding = TokenEmbedding(parameter(TABLE), nn.Identity(), bias=None, dropout=0.5)
    embedding.positions.forward = lambda x, start: x + 1
    torch.manual_seed(1)
    out = embedding.train()(torch.ones(1, 100, dtype=torch.int64))
    # Twice the row, plus one, doubled or gone.
    assert [sorted(set(column)) for column in out[0].T.tolist()] == [
        [0, 2 * (2 * value + 1)] for value in TABLE[1]
    ]


def test_an_id_may_have_the_row_of_another_and_the_scale_may_be_one():
    embedding = TokenEmbedding(
        parameter(TABLE), nn.Identity(), bias=None, dropout=0.0, scale=1.0, alias=(1, 0)
    )
    embedding.positions.forward = lambda x, start: x
    assert embedding(torch.tensor([[1, 2, 0]]))[0].tolist() == [TABLE[0], TABLE[2], TABLE[0]]


def test_one_id_may_be_zeros_and_positions_alone() -> None:
    embedding = TokenEmbedding(parameter(TABLE), nn.Identity(), bias=None, dropout=0.0, zero=2)
    embedding.positions.forward = lambda x, start: x + 1
    scaled = [value * len(TABLE[1]) ** 0.5 + 1 for value in TABLE[1]]
    out = embedding(torch.tensor([[1, 2]]))[0].tolist()
    assert out == [pytest.approx(scaled), [1.0] * len(TABLE[1])]
