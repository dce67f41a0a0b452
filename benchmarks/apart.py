"""Contenders in processes of their own, as a user of each would run it.

What one does to its process, such as where its memory comes from, is then nothing to the others.
"""

import ctypes
import gc
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from turns import Spent, Turns, clocks, since, take_turns

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
Turn = Callable[[], Any]


class Done(NamedTuple):
    """The cost of one turn, and the contender's result."""

    spent: Spent
    result: Any


class Apart:
    """A contender that waits for its turns.

    Args:
        make: a function of a module, called there with a stack that closes what it opens, and
            `arguments`; returns the device and what a turn does, after warming up.
        arguments: can be pickled.

    Attributes:
        memory: bytes at the peak of a turn before all others, beyond those held before it.
        turns: those it has done since.
    """

    def __init__(self, make: Callable[..., tuple[torch.device, Turn]], *arguments: Any) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, *arguments))
        self._process.start()
        theirs.close()
        self.memory: int = self._connection.recv()
        self.turns: list[Done] = []

    def __call__(self) -> None:
        """One turn; EOFError if the process is gone."""
        self._connection.send(True)
        self.turns.append(self._connection.recv())

    def close(self) -> None:
        """No more turns."""
        self._connection.send(False)
        self._process.join()


def _serve(connection: Connection, make: Callable[..., Any], *arguments: Any) -> None:
    with ExitStack() as stack:  # a process of multiprocessing never comes to its atexit
        device, turn = make(stack, *arguments)
        connection.send(peak_increase(turn, device))
        with suppress(EOFError):  # the other process has ended
            while connection.recv():
                started = clocks(device)
                result = turn()
                connection.send(Done(since(started, device=device), result))


def peak_increase(work: Callable[[], object], device: torch.device) -> int:
    """Bytes that `work` needs at its peak beyond those held before: of the GPU, or resident.

    On Linux with glibc, which forgets a process's peak when asked to (proc(5), clear_refs).
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    before = _forget_peak()
    work()
    return max(0, _kilobytes("VmHWM") * 1024 - before)


def _forget_peak() -> int:
    """Bytes resident now, without what is free, which are the peak from now on."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    CLEAR.write_text("5", encoding="ascii")
    return _kilobytes("VmRSS") * 1024


def _kilobytes(key: str) -> int:
    match = re.search(rf"^{key}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.M)
    return int(match[1]) if match else 0


class Measured(NamedTuple):
    """By contender: turns, bytes at the peak beyond those held before, result of the last turn."""

    turns: Turns
    memory: dict[str, int]
    results: dict[str, Any]


def measure(
    make: Callable[..., tuple[torch.device, Turn]],
    arguments: Mapping[str, tuple[Any, ...]],
    *,
    repeats: int,
) -> Measured:
    """All contenders in turns, each in a process of its own, made with its arguments."""
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(closing(Apart(make, *own))) for name, own in arguments.items()
        }
        take_turns(runs, repeats=repeats)
        return Measured(
            Turns({name: [done.spent for done in run.turns] for name, run in runs.items()}),
            {name: run.memory for name, run in runs.items()},
            {name: run.turns[-1].result for name, run in runs.items()},
        )
