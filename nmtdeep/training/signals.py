"""Leaving on request: SIGINT and SIGTERM are noted, and the loop saves and leaves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying; a second one ends at once."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
