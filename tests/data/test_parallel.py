"""In order, in several processes, with few items on their way."""

import os
import subprocess
import sys
from operator import neg

import pytest

from nmtdeep.data.parallel import ordered_map
from nmtdeep.errors import UserError


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_order_and_items_are_not_read_ahead(workers):
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


def test_workers_leave_when_their_parent_is_killed():
    """They inherit its stdout: it closes only when the last of them is gone."""
    code = (
        "import time; from nmtdeep.data.parallel import ordered_map\n"
        "if __name__ == '__main__':\n"
        "    results = ordered_map(time.sleep, [0] * 9, workers=2); next(results)\n"
        "    print('up', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        rest, _ = parent.communicate(timeout=20)
    assert rest == ""
