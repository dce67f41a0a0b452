"""Work in several processes or ahead of time in a thread: in order, with bounded memory."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import cache
from itertools import islice, repeat
from multiprocessing.sharedctypes import Synchronized
from typing import Any, Generic, TypeVar

from nmtdeep.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Each worker's own.
_function: Callable[[Any], Any] = lambda item: item  # noqa: E731
_number = 0


@cache
def obstacle() -> str:
    """Why processes cannot work together here; empty if they can."""
    try:
        multiprocessing.get_context("spawn").Lock()
    except (OSError, ImportError) as error:
        return f"no semaphores for several processes, which on Linux need /dev/shm ({error})"
    return ""


def check_processes() -> None:
    """Raises UserError if processes cannot work together here."""
    if reason := obstacle():
        hint = "mount a tmpfs at /dev/shm, or use one process"
        raise UserError(reason, where="--processes", hint=hint)


@cache
def can_start(option: str) -> bool:
    """Whether worker processes can be started; if not, one line says so.

    Args:
        option: the command-line option for their number.
    """
    if reason := obstacle():
        print(f"warning: {option}: {reason}: one process does the work", file=sys.stderr)
    return not reason


class Pool(Generic[Item, Result]):
    """Spawned processes that apply one function, which is pickled once for each of them.

    Args:
        option: the command-line option for this number, for the error message.
    """

    def __init__(
        self, function: Callable[[Item], Result], workers: int, *, option: str = "--workers"
    ) -> None:
        context = multiprocessing.get_context("spawn")
        started = (function, context.Value("i", 0))
        self._pool = ProcessPoolExecutor(workers, context, initializer=_adopt, initargs=started)
        self._ahead = 3 * workers
        self._option = option

    def map(self, items: Iterable[Item]) -> Iterator[Result]:
        """Results in order; at most a few items per worker are in progress.

        Raises:
            UserError: if a worker dies.
        """
        submitted = (self._checked(self._pool.submit, _apply, item) for item in items)
        return (self._checked(each.result) for each in lookahead(submitted, self._ahead))

    def start(self, items: Iterable[Item]) -> Iterator[Result]:
        """The same of items that are all put in progress now."""
        submitted = [self._checked(self._pool.submit, _apply, item) for item in items]
        return (self._checked(each.result) for each in submitted)

    def _checked(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BrokenProcessPool:
            what = "a worker process died, probably for lack of memory"
            raise UserError(what, hint=f"use fewer {self._option}") from None

    def close(self) -> None:
        """End the processes after the items that they are working on."""
        self._pool.shutdown(cancel_futures=True)


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, workers: int
) -> Iterator[Result]:
    """`map`, in a `Pool` of `workers` processes; with one, everything happens in this process."""
    if workers <= 1 or not can_start("--workers"):
        yield from map(function, items)
        return
    with closing(Pool(function, workers)) as pool:
        yield from pool.map(items)


def lookahead(items: Iterable[Item], count: int) -> Iterator[Item]:
    """The items, each after `count` more were taken; an error comes in its place."""
    held: deque[Item] = deque()
    try:
        for item in items:
            held.append(item)
            if len(held) > count:
                yield held.popleft()
    except Exception:
        yield from held
        raise
    yield from held


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
    end: Any = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch", initializer=begin)
    try:
        for future in lookahead((pool.submit(next, items, end) for _ in repeat(None)), depth):
            began = time.perf_counter()
            item = future.result()
            if item is end:
                return
            yield item, time.perf_counter() - began
    finally:
        pool.shutdown(cancel_futures=True)


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items, the last one shorter."""
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def worker_number() -> int:
    """Number of this process among the workers of its pool, from 0."""
    return _number


def _adopt(function: Callable[[Any], Any], started: Synchronized[int]) -> None:
    global _function, _number  # noqa: PLW0603  # the only state that a pool's initializer can set
    with started:
        _number = started.value
        started.value += 1
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its workers
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """Without this, a worker whose parent was killed would wait forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _apply(item: Any) -> Any:
    return _function(item)
