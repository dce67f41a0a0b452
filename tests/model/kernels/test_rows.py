"""Rows of a tensor by number."""

import pytest
import torch

from nmtdeep.model.kernels import keep_rows


@pytest.mark.parametrize("sentences", [[0, 1, 2, 3, 4], [0, 4, 2], [3, 4, 2], [2, 0], [4], []])
def test_keep_rows_equals_indexing(sentences):
    x = torch.arange(10.0).view(5, 2)
    chosen = torch.tensor(sentences, dtype=torch.int64)
    expected = x[chosen]
    assert torch.equal(keep_rows(x, chosen), expected)
