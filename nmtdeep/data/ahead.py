"""Items made ahead of time by a thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(
    items: Iterator[Item], *, depth: int, begin: Callable[[], object] = lambda: None
) -> Generator[tuple[Item, float], None, None]:
    """`items` in order, each with the seconds that its taker waited for it.

    A thread of its own makes at most `depth` items more than were taken. What it raises is raised
    here, when the turn of that item comes. The thread ends with this generator: at the end of a
    `for` loop over it, however that is left.

    Args:
        begin: called once in the thread, before the first item.
    """
    end = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="ahead", initializer=begin)
    try:
        pending: deque[Future[Item | object]] = deque(
            pool.submit(next, items, end) for _ in range(depth)
        )
        while True:
            began = time.perf_counter()
            item = pending.popleft().result()
            waited = time.perf_counter() - began
            if item is end:
                return
            pending.append(pool.submit(next, items, end))
            yield item, waited  # type: ignore[misc]  # the one object that is no item has left
    finally:
        pool.shutdown(cancel_futures=True)
