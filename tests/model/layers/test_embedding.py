"""Dropout of an embedding by hand; tests/model/test_transformer.py has the rest of the formula."""

import torch
from torch import nn

from nmtdeep.model.layers.embedding import TokenEmbedding

TABLE = [[9.0] * 4, [1.0, 2.0, 3.0, 4.0], [-1.0, 0.0, 0.5, 2.0]]


def made(added, *, dropout=0.0, **options):
    """An embedding of `TABLE`, and a number at each position."""
    weight = nn.Parameter(torch.tensor(TABLE, dtype=torch.float64))
    options = {"bias": None, **options}
    embedding = TokenEmbedding(weight, nn.Identity(), dropout=dropout, **options)
    embedding.positions.forward = lambda x, start: x + added
    return embedding


def test_dropout_is_on_the_sum():
    embedding = made(1, dropout=0.5)
    torch.manual_seed(1)
    out = embedding.train()(torch.ones(1, 100, dtype=torch.int64))
    # Twice the row, plus one, doubled or gone.
    assert [sorted(set(column)) for column in out[0].T.tolist()] == [
        [0, 2 * (2 * value + 1)] for value in TABLE[1]
    ]


def test_an_id_may_have_the_row_of_another_and_the_scale_may_be_one():
    embedding = made(0, scale=1.0, alias=(1, 0))
    assert embedding(torch.tensor([[1, 2, 0]]))[0].tolist() == [TABLE[0], TABLE[2], TABLE[0]]


def test_one_id_may_be_zeros_and_positions_alone():
    out = made(1, zero=2)(torch.tensor([[1, 2]]))[0].tolist()
    assert out == [[2 * value + 1 for value in TABLE[1]], [1] * 4]
    bias = nn.Parameter(torch.full((4,), 5.0, dtype=torch.float64))
    out = made(1, zero=2, bias=bias)(torch.tensor([[1, 2]]))[0].tolist()
    assert out == [[2 * value + 6 for value in TABLE[1]], [1] * 4]
