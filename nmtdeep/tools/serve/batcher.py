"""Lines of many requests to batches that are translated together, in one thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import NamedTuple

from nmtdeep.decoding.translation import Translation
from nmtdeep.decoding.translator import Translator
from nmtdeep.tools.serve import ServiceOptions
from nmtdeep.tools.serve.messages import RequestRefusedError


class Line(NamedTuple):
    """A line, the number of those before it in its request, and its translation to come."""

    text: str
    number: int
    translation: asyncio.Future[Translation]


class Batcher:
    """Translates the lines of several callers in batches that they share.

    Only the event loop's thread uses the batcher; the translator has a thread of its own. Callers
    get equal shares of a batch: a short request does not wait for the end of a long one.
    """

    def __init__(self, translator: Translator, options: ServiceOptions) -> None:
        self._translator = translator
        self._options = options
        self._requests: deque[deque[Line]] = deque()  # the waiting lines of each
        self._arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._requests))

    async def translate(self, lines: Sequence[str]) -> list[Translation]:
        """Translations of the lines, in order; lines of a canceled caller are dropped.

        Raises:
            RequestRefusedError: if the queue is full.
            UserError: if the translator refuses one of them.
        """
        if self.waiting + len(lines) > self._options.max_queue:
            raise RequestRefusedError(429, f"{self.waiting} lines are waiting: try again later")
        new = asyncio.get_running_loop().create_future
        request = deque(Line(text, number, new()) for number, text in enumerate(lines))
        translations = asyncio.gather(*(line.translation for line in request))
        self._requests.append(request)
        self._arrived.set()
        try:
            return await translations
        finally:
            request.clear()

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
        while True:
            await self._arrived.wait()
            if self.waiting < self._options.batch_lines:
                await asyncio.sleep(self._options.batch_wait / 1000)
            batch = self._take()
            if not batch:
                self._arrived.clear()
                continue
            loop = asyncio.get_running_loop()
            outcomes = await loop.run_in_executor(thread, self._translate, batch)
            for line, outcome in zip(batch, outcomes, strict=True):
                if line.translation.done():  # the caller has left
                    continue
                if isinstance(outcome, Exception):
                    line.translation.set_exception(outcome)
                else:
                    line.translation.set_result(outcome)

    def _take(self) -> list[Line]:
        """The next batch: a line of each request in turn."""
        batch: list[Line] = []
        while self._requests and len(batch) < self._options.batch_lines:
            request = self._requests.popleft()
            if request:
                batch.append(request.popleft())
                self._requests.append(request)
        return batch

    def _translate(self, batch: Sequence[Line]) -> list[Translation | Exception]:
        """The translation or the error of each line; a batch that fails is tried in halves."""
        self._translator.restart(batch[0].number)
        try:
            return [*self._translator.translate_chunk([line.text for line in batch])]
        except Exception as error:
            if len(batch) == 1:
                return [error]
        half = len(batch) // 2
        return [*self._translate(batch[:half]), *self._translate(batch[half:])]
