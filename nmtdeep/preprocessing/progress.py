"""Progress of a long step: a bar on a terminal, a plain line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from nmtdeep.units import size

Advance = Callable[[float], None]
Unit = Literal["things", "bytes"]
BETWEEN = 10.0  # seconds, of two plain lines


class ProgressBar:
    """Shows on stderr which step runs, how far it is and when it ends.

    Args:
        style: `none` shows nothing.

    Attributes:
        seconds: of each step that has ended, by name.
        width: of the longest name.
    """

    def __init__(self, style: Literal["auto", "none"] = "auto") -> None:
        self.style = style
        self.seconds: dict[str, float] = {}
        self.width = 24
        self._console = Console(stderr=True)

    @contextmanager
    def step(self, name: str, total: int, *, unit: Unit = "things") -> Iterator[Advance]:
        """A step of `total` lines, merges or bytes (0: unknown); call the result with each part."""
        start = time.perf_counter()
        if self.style == "none":
            yield lambda _: None
        elif self._console.is_terminal:
            with Progress(
                TextColumn(f"{{task.description:<{self.width}}}"),
                BarColumn(),
                DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
                TimeRemainingColumn(elapsed_when_finished=True),
                console=self._console,
            ) as bar:
                # Until the first part is done, which may take seconds, the bar only moves.
                task = bar.add_task(name, total=total or None, start=False)

                def advance(done: float) -> None:
                    bar.start_task(task)
                    bar.advance(task, done)

                yield advance
        else:
            yield self._lines(name, total, size if unit == "bytes" else "{:,}".format)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def _lines(self, name: str, total: int, shown: Callable[[float], str]) -> Advance:
        """Prints `tokenize train: 40,000/164,700 (24 %), eta 0:00:31` now and then."""
        start = printed = time.perf_counter()
        done = 0.0

        def advance(part: float) -> None:
            nonlocal done, printed
            done, now = done + part, time.perf_counter()
            if now - printed < BETWEEN:
                return
            printed, line = now, f"{name}: {shown(int(done))}"
            if total:
                left = timedelta(seconds=round((now - start) / max(done, 1) * max(total - done, 0)))
                line += f"/{shown(total)} ({100 * done // total:.0f} %), eta {left}"
            print(line, file=sys.stderr, flush=True)

        return advance
