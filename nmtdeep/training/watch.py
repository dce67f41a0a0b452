"""Signs of life: a process that fails, is killed or stops is named to all others in seconds.

Collectives wait for hours (a validation takes as long as it takes) and say nothing of who is
missing. So a small thread of each process counts up a number in the store that they share, and
looks whether those of others still change. That thread goes on while the process computes,
validates or saves; it stops only with the process itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass

from torch.distributed import Store  # type: ignore[attr-defined]

BEAT = 1.0
# In beats: without a sign of life, and the same when a broken connection says that one is gone.
PATIENCE, SUSPICION = 20, 6
SECONDS_TO_LEAVE = 5.0
EXIT_CODE = 2
HINT = "the last checkpoint is whole, and the same command goes on from there"


@dataclass(frozen=True)
class Failure:
    """Which process failed, where, and why."""

    rank: int
    size: int
    host: str
    reason: str

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size} on {self.host}: {self.reason}; {HINT}"


class Watch:
    """What one process tells the others of itself and hears of them, beside its work.

    The first process looks after all others, and these after the first. Whoever finds one missing
    tells all. If the main thread does not leave of itself, because it waits for the missing one,
    the watch ends the process.

    Args:
        store: a connection of its own, with keys that no other training uses.
        rank: this process's number.
        size: how many there are.
        speaks: says what happened if it has to end the process; one on each machine does.
        on_loss: called once somebody is lost, to free the main thread if that is possible.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        *,
        speaks: bool,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self.asked: list[int] = []
        self.failure: Failure | None = None
        self._store, self._rank, self._size = store, rank, size
        self._speaks, self._on_loss = speaks, on_loss
        self._signal = 0
        self._rounds = 0
        self._patience = PATIENCE
        self._over, self._found, self._taken = (threading.Event() for _ in range(3))
        store.set(f"host/{rank}", socket.gethostname())
        store.add(f"alive/{rank}", 1)

    def start(self) -> None:
        """Begin; all processes are there."""
        for work in (self._listen, self._guard):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """End: what the others do is no longer of interest."""
        self._over.set()

    def ask(self, number: int) -> None:
        """Tell the first process that this one got signal `number` and should leave."""
        self._signal = number

    def fail(self, error: BaseException) -> None:
        """Tell all others why this process leaves, unless another one has failed before."""
        self.take_over()
        text = str(error).partition("\n")[0]
        named = type(error).__name__ + (f": {text}" if text else "")
        plain = type(error).__module__ == "nmtdeep.errors"
        self._tell(self._rank, text if plain else named)

    def verdict(self) -> Failure | None:
        """Who failed, after a connection broke; None if nobody seems to be missing."""
        self._patience = SUSPICION
        self._found.wait((SUSPICION + 4) * BEAT)
        return self.failure

    def told(self) -> Failure | None:
        """Who failed, as far as it is known by now."""
        try:
            if not self.failure and self._store.check(["failed"]):
                self.failure = Failure(**json.loads(self._store.get("failed")))
        except RuntimeError:  # the store is gone
            return self.failure
        return self.failure

    def take_over(self) -> None:
        """The main thread leaves by itself: the watch waits for it and says nothing."""
        self._taken.set()

    def speaks_of(self, failure: Failure) -> bool:
        """Whether this process is to say it; the first one cannot tell of itself."""
        return self._speaks or failure.rank == 0

    def _tell(self, rank: int, reason: str) -> None:
        try:
            host = f"host/{rank}"
            where = self._store.get(host).decode() if self._store.check([host]) else "its machine"
            note = json.dumps(asdict(Failure(rank, self._size, where, reason)))
            self._store.compare_set("failed", "", note)
        except RuntimeError:  # the store is gone, which the others see too
            return

    def _listen(self) -> None:
        others = range(1, self._size) if self._rank == 0 else (0,)
        seen = dict.fromkeys(others, (0, 0))
        try:
            while not self._over.wait(BEAT) and not self.failure:
                self._store.add(f"alive/{self._rank}", 1)
                self._pass_on_signals()
                for rank in others:
                    beats, still = self._store.add(f"alive/{rank}", 0), seen[rank][1]
                    seen[rank] = (beats, still + 1 if beats == seen[rank][0] else 0)
                    if seen[rank][1] >= self._patience:
                        since = f"{self._patience * BEAT:.0f} s"
                        self._tell(rank, f"killed, stopped or cut off: no sign of life for {since}")
                self.told()
                self._rounds += 1
        except RuntimeError as error:
            self.failure = self._without_store(f"lost: {str(error).partition(chr(10))[0]}")

    def _pass_on_signals(self) -> None:
        if self._rank and self._signal:
            self._store.set("asked", str(self._signal))
        elif self._rank == 0 and not self.asked and self._store.check(["asked"]):
            self.asked.append(int(self._store.get("asked")))

    def _without_store(self, how: str) -> Failure:
        """The store lives with the first process, or with torchrun on the first one's machine."""
        return Failure(0, self._size, "the first machine", how)

    def _guard(self) -> None:
        """End the process if another one failed; counts beats, so that a pause of all is none."""
        rounds, still = 0, 0
        while not self._over.wait(BEAT):
            still = still + 1 if rounds == self._rounds else 0
            rounds = self._rounds
            if still >= PATIENCE and not self.failure:
                self.failure = self._without_store(f"no answer for {PATIENCE * BEAT:.0f} s")
            if self.failure:
                self._end(self.failure)
                return

    def _end(self, failure: Failure) -> None:
        self._found.set()
        self._on_loss()
        if self._over.wait(SECONDS_TO_LEAVE):
            return
        if self._taken.is_set():
            if self._over.wait(2 * SECONDS_TO_LEAVE):
                return
        elif self.speaks_of(failure):
            print(f"nmtdeep: error: {failure}", file=sys.stderr, flush=True)
        os._exit(EXIT_CODE)
