"""In order, in several processes or a thread, with few items on their way."""

import os
import subprocess
import sys
import threading
from contextlib import closing
from itertools import count
from operator import call, neg
from pathlib import Path

import pytest

from nmtdeep.data.parallel import (
    Pool,
    can_start,
    lookahead,
    obstacle,
    ordered_map,
    prefetch,
    worker_number,
)
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


@pytest.fixture
def no_semaphores(monkeypatch):
    """A machine without /dev/shm: what a real one raises."""
    missing = Path("/dev/shm-is-missing/semaphore")
    monkeypatch.setattr("multiprocessing.context.BaseContext.Lock", lambda _: missing.touch())
    obstacle.cache_clear()
    can_start.cache_clear()
    yield
    obstacle.cache_clear()
    can_start.cache_clear()


@pytest.mark.usefixtures("no_semaphores")
def test_without_semaphores_one_process_does_the_work_and_one_line_says_so(capsys):
    for _ in range(2):
        assert list(ordered_map(neg, range(5), workers=2)) == [0, -1, -2, -3, -4]
    assert capsys.readouterr().err.count("\n") == 1


def test_results_before_an_error_come_first():
    def items():
        yield from (1, 2, 3)
        raise ValueError

    for held in range(5):
        taken = lookahead(items(), held)
        assert [next(taken) for _ in range(3)] == [1, 2, 3]
        with pytest.raises(ValueError):
            next(taken)
        assert list(lookahead(iter("abc"), held)) == ["a", "b", "c"]


def test_workers_are_numbered():
    with closing(Pool(call, 2)) as pool:
        started = pool._pool._initargs[1]
        assert set(pool.start([worker_number] * 6)) <= {0, 1}
    assert started.value == 2


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


# Items made ahead of time by a thread


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_in_order_to_the_end_and_by_another_thread():
    makers = set()

    def items():
        for number in range(20):
            makers.add(threading.current_thread())
            yield number

    begun: list[threading.Thread] = []
    feed = prefetch(items(), depth=3, begin=lambda: begun.append(threading.current_thread()))
    assert [item for item, _ in feed] == list(range(20))
    assert makers == {*begun} and len(begun) == 1
    assert threading.current_thread() not in makers
    assert threads() == []


def test_no_more_are_made_than_asked_for():
    made: list[int] = []
    waiting = threading.Semaphore(0)

    def items():
        for number in count():
            made.append(number)
            waiting.release()
            yield number

    feed = prefetch(items(), depth=3)
    assert next(feed)[0] == 0
    for _ in range(4):  # the one that was taken and three more; each announces itself
        assert waiting.acquire(timeout=10)
    assert not waiting.acquire(timeout=0.05)
    assert made == [0, 1, 2, 3]
    feed.close()
    assert threads() == []


def test_an_error_is_raised_in_its_turn():
    def items():
        yield from (0, 1)
        raise ValueError("the third")

    taken = []
    with pytest.raises(ValueError, match="the third"):
        for item, _ in prefetch(items(), depth=5):
            taken.append(item)
    assert taken == [0, 1]
    assert threads() == []


def test_the_thread_ends_however_the_loop_is_left():
    def leave():
        for _ in prefetch(count(), depth=2):
            assert threads()
            raise KeyError

    try:
        leave()
    except KeyError:
        assert threads() == []  # the traceback still holds the frame of the loop
    feed = prefetch(count(), depth=2)
    assert next(feed)[0] == 0
    del feed
    assert threads() == []
