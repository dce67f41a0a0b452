"""Items made ahead of time by a thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def prefetch(
    items: Iterator[Item], *, depth: int, begin: Callable[[], object] = lambda: None
) -> Generator[tuple[Item, float], None, None]:
    """`items` in order, each with the seconds that its taker waited for it.

    A thread makes at most `depth` items more than were taken. Its errors are raised here, at the
    position of the item. The thread ends with this generator: at the end of a `for` loop over it,
    also if the loop ends by `break` or an error.

    Args:
        begin: called once in the thread, before the first item.
    """
    end = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch", initializer=begin)
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
            yield item, waited  # type: ignore[misc]  # not the end
    finally:
        pool.shutdown(cancel_futures=True)
