"""Contenders in processes of their own, as a user of each would run it.

What one does to its process, such as where its memory comes from, is then nothing to the others.
"""

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from memory import peak_increase
from turns import Spent, clocks, since

Turn = Callable[[], float]


class Done(NamedTuple):
    """One turn: what it took, and what the contender returned."""

    spent: Spent
    result: float


class Apart:
    """A contender that waits for its turns.

    Args:
        make: a function of a module, called there with `arguments`; gives the device and what a
            turn does.
        arguments: can be pickled.

    Attributes:
        memory: bytes at the peak of its first turn, beyond those held before it.
        turns: those it has done, but for the first.
    """

    def __init__(self, make: Callable[..., tuple[torch.device, Turn]], *arguments: Any) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, *arguments), daemon=True)
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
    device, turn = make(*arguments)
    turn()
    connection.send(peak_increase(turn, device))
    while connection.recv():
        started = clocks(device)
        result = turn()
        connection.send(Done(since(started, device=device), result))
