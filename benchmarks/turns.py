"""Contenders that take turns, and ratios formed within a turn.

A machine that others use is fast in one minute and slow in the next. What ran in the same turn ran
under the same load, so ratios are formed there; their median and extremes are reported.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch


class Spent(NamedTuple):
    """Seconds by the clock on the wall, and of all threads of this process."""

    wall: float
    cpu: float


def clocks(device: torch.device | None = None) -> Spent:
    """The time after all work that was sent to `device` is done."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
    return Spent(time.perf_counter(), time.process_time())


def since(started: Spent, device: torch.device | None = None) -> Spent:
    now = clocks(device)
    return Spent(now.wall - started.wall, now.cpu - started.cpu)


@dataclass(frozen=True)
class Turns:
    """The cost of each turn, by contender."""

    spent: dict[str, list[Spent]]

    def seconds(self, name: str, clock: str = "wall") -> list[float]:
        return [getattr(turn, clock) for turn in self.spent[name]]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds(name))

    def ratios(self, others: Sequence[str], over: str, clock: str = "wall") -> list[float]:
        """Seconds of the fastest of `others` over those of `over`, turn by turn.

        Above 1, `over` is faster.
        """
        turns = zip(*(self.seconds(name, clock) for name in others), strict=True)
        pairs = zip(turns, self.seconds(over, clock), strict=True)
        return [min(turn) / own for turn, own in pairs]


def take_turns(
    contenders: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    device: torch.device | None = None,
) -> Turns:
    """Time every contender in each of `repeats` turns; each turn starts with another of them."""
    names = list(contenders)
    spent: dict[str, list[Spent]] = {name: [] for name in names}
    for turn in range(repeats):
        first = turn % len(names)
        for name in (*names[first:], *names[:first]):
            started = clocks(device)
            contenders[name]()
            spent[name].append(since(started, device=device))
    return Turns(spent)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median (least to most)."""
    median, least, most = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"
