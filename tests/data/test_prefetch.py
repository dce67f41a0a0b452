"""Items made ahead of time: in order, bounded, errors in their place, no thread left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from nmtdeep.data.prefetch import prefetch


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


def test_in_order_to_the_end_and_by_another_thread() -> None:
    makers = set()

    def items() -> Iterator[int]:
        for number in range(20):
            makers.add(threading.current_thread())
            yield number

    assert [item for item, _ in prefetch(items(), depth=3)] == list(range(20))
    assert len(makers) == 1
    assert threading.current_thread() not in makers
    assert threads() == []


def test_no_more_are_made_than_asked_for() -> None:
    made: list[int] = []
    waiting = threading.Semaphore(0)

    def items() -> Iterator[int]:
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


def test_an_error_is_raised_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 0
        yield 1
        raise ValueError("the third")

    taken = []
    with pytest.raises(ValueError, match="the third"):
        for item, _ in prefetch(items(), depth=5):
            taken.append(item)
    assert taken == [0, 1]
    assert threads() == []


def test_the_time_of_waiting_is_measured() -> None:
    released = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        released.wait(10)
        yield 1

    feed = prefetch(items(), depth=2)
    next(feed)
    threading.Timer(0.2, released.set).start()
    _, waited = next(feed)
    assert waited > 0.1
    feed.close()


def leave(error: type[Exception] | None) -> None:
    for _ in prefetch(count(), depth=2):
        assert threads()
        if error:
            raise error
        break


def test_the_thread_ends_however_the_loop_is_left() -> None:
    leave(None)
    assert threads() == []
    try:
        leave(KeyError)
    except KeyError:
        # The traceback still holds the frame of the loop.
        assert threads() == []
    feed = prefetch(count(), depth=2)
    assert next(feed)[0] == 0
    del feed
    assert threads() == []


def test_begin_is_called_before_the_first_item() -> None:
    order: list[str] = []
    items = (order.append(name) for name in ("first", "second"))
    list(prefetch(items, depth=1, begin=lambda: order.append("begin")))
    assert order == ["begin", "first", "second"]
