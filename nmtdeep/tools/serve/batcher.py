"""Lines of many requests to batches that are translated together, in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice, repeat, zip_longest
from typing import NamedTuple

from nmtdeep.decoding.translation import Translation
from nmtdeep.decoding.translator import Translator
from nmtdeep.tools.serve.limits import Limits
from nmtdeep.tools.serve.messages import RequestRefusedError
from nmtdeep.tools.serve.metrics import Metrics

LONGEST_RETRY = 60


@dataclass(eq=False)
class Job:
    """Lines that are answered together.

    Attributes:
        taken: how many of them are translated, or are in the model.
    """

    lines: list[str]
    answer: asyncio.Future[list[Translation]]
    taken: int = 0
    translations: list[Translation] = field(default_factory=list)

    @property
    def left(self) -> int:
        return len(self.lines) - self.taken


class Part(NamedTuple):
    """Consecutive lines of a job, the first of which has the number `first`."""

    job: Job
    first: int
    lines: list[str]


class Batcher:
    """Translates the lines of several callers in batches that they share.

    Only the event loop's thread uses the batcher; the translator has a thread of its own. Callers
    get equal shares of a batch: a short request does not wait for the end of a long one.
    """

    def __init__(self, translator: Translator, metrics: Metrics, limits: Limits) -> None:
        self._translator = translator
        self._metrics = metrics
        self._limits = limits
        self._jobs: dict[Job, None] = {}  # in the order in which they came
        self._seconds_per_line = 0.0
        self._arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        return sum(job.left for job in self._jobs)

    async def translate(self, lines: list[str]) -> list[Translation]:
        """Translations of the lines, in order; lines of a canceled caller are dropped.

        Raises:
            RequestRefusedError: if the queue is full.
            UserError: if the translator refuses one of them.
        """
        if not lines:
            return []
        if self.waiting + len(lines) > self._limits.max_queue:
            seconds = math.ceil(self.waiting * self._seconds_per_line)
            reason = f"{self.waiting} lines are waiting: try again later"
            raise RequestRefusedError(429, reason, retry=min(max(1, seconds), LONGEST_RETRY))
        job = Job(lines, asyncio.get_running_loop().create_future())
        self._jobs[job] = None
        self._arrived.set()
        try:
            return await job.answer
        finally:
            self._jobs.pop(job, None)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Translate within the block; at its end the batch in the model is finished."""
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
            if self.waiting < self._limits.batch_lines:
                await asyncio.sleep(self._limits.batch_wait / 1000)
            parts = self._take()
            if not self._jobs:
                self._arrived.clear()
            if not parts:
                continue
            began = time.perf_counter()
            answers = await loop.run_in_executor(thread, self._translate, parts)
            seconds = time.perf_counter() - began
            lines = sum(len(part.lines) for part in parts)
            self._seconds_per_line = seconds / lines
            self._metrics.lines.inc(lines)
            self._metrics.batch_lines.observe(lines)
            self._metrics.batch_requests.observe(len(parts))
            self._metrics.batch_seconds.observe(seconds)
            for part, answer in zip(parts, answers, strict=True):
                self._deliver(part.job, answer)

    def _take(self) -> list[Part]:
        """The next batch: the first lines of all jobs, in equal shares, the oldest job first."""
        turns = zip_longest(*(repeat(job, job.left) for job in self._jobs))
        lines = (job for turn in turns for job in turn if job)
        parts = []
        for job, count in Counter(islice(lines, self._limits.batch_lines)).items():
            parts.append(Part(job, job.taken, job.lines[job.taken : job.taken + count]))
            job.taken += count
            if not job.left:
                del self._jobs[job]
        return parts

    def _translate(self, parts: Sequence[Part]) -> list[list[Translation] | Exception]:
        """Translations or the error of each part; if all together fail, each is tried alone."""
        self._translator.restart(parts[0].first)
        try:
            translations = iter(
                self._translator.translate_chunk([line for part in parts for line in part.lines])
            )
            return [[next(translations) for _ in part.lines] for part in parts]
        except Exception as error:
            if len(parts) == 1:
                return [error]
        return [answer for part in parts for answer in self._translate([part])]

    def _deliver(self, job: Job, answer: list[Translation] | Exception) -> None:
        if job.answer.done():  # the caller has left, or an earlier part failed
            return
        if isinstance(answer, Exception):
            self._jobs.pop(job, None)
            job.answer.set_exception(answer)
            return
        job.translations += answer
        if len(job.translations) == len(job.lines):
            job.answer.set_result(job.translations)
