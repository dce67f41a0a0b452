"""Lines of many requests to chunks that are translated together, in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from nmtdeep.decoding.translator import Translation

LONGEST_RETRY = 60


class Translates(Protocol):
    """What a `Translator` is here."""

    def restart(self) -> None:
        """Count from the beginning."""

    def skip(self, lines: int) -> None:
        """Count lines that went before."""

    def translate_chunk(self, lines: Sequence[str]) -> list[Translation]:
        """Translate lines together, in order."""


class Hears(Protocol):
    """Is told of each chunk."""

    def translated(self, *, requests: int, lines: int, seconds: float) -> None:
        """A chunk is done."""


class FullError(Exception):
    """There is no room for so many lines.

    Args:
        seconds: after which there may be.
    """

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


@dataclass(eq=False)
class Job:
    """Lines that are answered together.

    Attributes:
        taken: how many of them are translated, or being so.
    """

    lines: list[str]
    answer: asyncio.Future[list[Translation]]
    taken: int = 0
    found: list[Translation] = field(default_factory=list)


class Part(NamedTuple):
    """Lines of a job from the one of number `first` on."""

    job: Job
    first: int
    lines: list[str]


class Batcher:
    """Translates what several callers ask for at a time, in chunks that they share.

    Everything but the translator is touched by the event loop's thread only. Callers are served in
    equal shares: a short request does not wait for the end of a long one.

    Args:
        at_once: most lines of a chunk.
        patience: seconds that a chunk waits for more lines.
        room: most lines that wait.
    """

    def __init__(
        self,
        translator: Translates,
        hearer: Hears,
        *,
        at_once: int,
        patience: float,
        room: int,
    ) -> None:
        self._translator = translator
        self._hearer = hearer
        self._at_once = at_once
        self._patience = patience
        self._room = room
        self._jobs: deque[Job] = deque()
        self._pace = 0.0
        self._arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Lines that wait."""
        return sum(len(job.lines) - job.taken for job in self._jobs)

    async def translate(self, lines: list[str]) -> list[Translation]:
        """Translations of the lines, in order; lines of a caller that is canceled are dropped.

        Raises:
            FullError: if too many lines wait.
            UserError: if the translator refuses one of them.
        """
        if not lines:
            return []
        if self.waiting + len(lines) > self._room:
            seconds = math.ceil(self.waiting * self._pace)
            raise FullError(min(max(1, seconds), LONGEST_RETRY))
        job = Job(lines, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._arrived.set()
        try:
            return await job.answer
        finally:
            self._forget(job)

    def _forget(self, job: Job) -> None:
        with contextlib.suppress(ValueError):
            self._jobs.remove(job)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Translates within the block; at its end the chunk that is under way is finished."""
        with ThreadPoolExecutor(1, "model") as thread:
            task = asyncio.create_task(self._run(thread))
            try:
                yield
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _run(self, thread: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if self.waiting < self._at_once:
                await asyncio.sleep(self._patience)
            parts = self._take()
            if not self._jobs:
                self._arrived.clear()
            if not parts:
                continue
            began = time.perf_counter()
            answers = await loop.run_in_executor(thread, self._translate, parts)
            seconds = time.perf_counter() - began
            lines = sum(len(part.lines) for part in parts)
            self._pace = seconds / lines
            self._hearer.translated(requests=len(parts), lines=lines, seconds=seconds)
            for part, answer in zip(parts, answers, strict=True):
                self._deliver(part.job, answer)

    def _take(self) -> list[Part]:
        """The next chunk: the first lines of all jobs, in equal shares, the oldest job first."""
        wanted = dict.fromkeys(self._jobs, 0)
        room = self._at_once
        while room and (open_ := [job for job in wanted if _left(job) > wanted[job]]):
            share = max(1, room // len(open_))
            for job in open_:
                more = min(share, room, _left(job) - wanted[job])
                wanted[job] += more
                room -= more
        parts = []
        for job, count in wanted.items():
            if count:
                parts.append(Part(job, job.taken, job.lines[job.taken : job.taken + count]))
                job.taken += count
            if not _left(job):
                self._jobs.remove(job)
        return parts

    def _translate(self, parts: Sequence[Part]) -> list[list[Translation] | Exception]:
        """What came of each part. If all together fail, each is tried alone."""
        self._translator.restart()
        self._translator.skip(parts[0].first)
        try:
            found = iter(
                self._translator.translate_chunk([line for part in parts for line in part.lines])
            )
            return [[next(found) for _ in part.lines] for part in parts]
        except Exception as error:
            if len(parts) == 1:
                return [error]
        return [answer for part in parts for answer in self._translate([part])]

    def _deliver(self, job: Job, answer: list[Translation] | Exception) -> None:
        if job.answer.done():  # the caller has left, or was refused an earlier part
            return
        if isinstance(answer, Exception):
            self._forget(job)
            job.answer.set_exception(answer)
            return
        job.found += answer
        if len(job.found) == len(job.lines):
            job.answer.set_result(job.found)


def _left(job: Job) -> int:
    return len(job.lines) - job.taken
