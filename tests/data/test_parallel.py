"""In order, in several processes, with few items on their way."""

import os
from operator import neg

import pytest

from nmtdeep.data.parallel import chunks, ordered_map
from nmtdeep.errors import UserError


@pytest.mark.parametrize("workers", [1, 2])
def test_is_map_in_order_and_does_not_read_ahead(workers):
    taken = []

    def numbers():
        for number in range(40):
            taken.append(number)
            yield number

    results = ordered_map(neg, numbers(), workers=workers)
    assert next(results) == 0
    assert len(taken) <= 3 * workers + 1
    assert list(results) == [-number for number in range(1, 40)]


def test_an_error_in_a_worker_arrives():
    with pytest.raises(TypeError):
        list(ordered_map(neg, ["a"], workers=2))


def test_a_dead_worker_is_a_clear_error():
    with pytest.raises(UserError, match="fewer --workers"):
        list(ordered_map(os._exit, [1, 1], workers=2))


def test_chunks():
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(chunks([], 2)) == []
