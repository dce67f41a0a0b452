"""How far a long step is: a bar on a terminal, a plain line every ten seconds elsewhere."""

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
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from nmtdeep.units import size

Advance = Callable[[int], None]
Unit = Literal["things", "bytes"]
SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Tells on stderr which step runs, how far it is and when it ends; remembers the times."""

    def __init__(
        self, style: Literal["auto", "none"] = "auto", *, between: float = SECONDS_BETWEEN_LINES
    ) -> None:
        self.style = style
        self.between = between
        self.seconds: dict[str, float] = {}
        self._console = Console(stderr=True)

    @contextmanager
    def step(self, name: str, total: int, *, unit: Unit = "things") -> Iterator[Advance]:
        """A step of `total` lines, merges or bytes; call what it gives with each number done.

        A total of 0 is one that nobody knows.
        """
        start = time.perf_counter()
        if self.style == "none":
            yield lambda _: None
        elif self._console.is_terminal:
            with self._bar(unit) as bar:
                task = bar.add_task(name, total=total or None)
                yield lambda done: bar.advance(task, done)
        else:
            yield _PlainLines(name, total, unit, self.between).advance
        taken = time.perf_counter() - start
        self.seconds[name] = self.seconds.get(name, 0.0) + taken

    def _bar(self, unit: Unit) -> Bar:
        return Bar(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            DownloadColumn() if unit == "bytes" else MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
        )


class _PlainLines:
    """`tokenize train: 40,000/164,700 (24 %), eta 0:00:31`, at most every ten seconds."""

    def __init__(self, name: str, total: int, unit: Unit, between: float) -> None:
        self.name, self.between = name, between
        self.total = total
        self.shown = size if unit == "bytes" else "{:,}".format
        self.done = 0
        self.start = self.told = time.perf_counter()

    def advance(self, done: int) -> None:
        self.done += done
        now = time.perf_counter()
        if now - self.told < self.between:
            return
        self.told = now
        line = f"{self.name}: {self.shown(self.done)}"
        if self.total:
            left = (now - self.start) / max(self.done, 1) * max(self.total - self.done, 0)
            line += (
                f"/{self.shown(self.total)} ({100 * self.done // self.total} %), eta "
                f"{timedelta(seconds=round(left))}"
            )
        print(line, file=sys.stderr, flush=True)
