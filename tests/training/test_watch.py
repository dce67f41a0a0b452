"""Signs of life: who fails, dies or stops is named; who is busy is left in peace."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
from torch.distributed import PrefixStore, TCPStore

from nmtdeep.errors import UserError
from nmtdeep.training import watch as module
from nmtdeep.training.distributed import Crew, Order
from nmtdeep.training.processes import crew_of
from nmtdeep.training.watch import Watch

CPU = torch.device("cpu")
SECONDS = 10


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watch]]:
    """Three watches, as of three processes that beat ten times faster; none may end this one."""
    monkeypatch.setattr(module, "BEAT", 0.1)
    monkeypatch.setattr(module.os, "_exit", lambda code: None)
    server = TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=SECONDS), False)
    stores = [
        PrefixStore("watch", TCPStore("127.0.0.1", server.port, is_master=False)) for _ in range(3)
    ]
    found = [Watch(store, rank, 3, speaks=True) for rank, store in enumerate(stores)]
    for one in found:
        one.start()
    yield found
    for one in found:
        one.stop()
    time.sleep(3 * module.BEAT)


def soon(condition: object, seconds: float = SECONDS) -> bool:
    """Whether `condition()` comes true."""
    latest = time.monotonic() + seconds
    while time.monotonic() < latest:
        if condition():
            return True
        time.sleep(0.02)
    return False


def test_a_main_thread_may_be_busy_for_long(watches: list[Watch]) -> None:
    assert not soon(lambda: any(one.failure for one in watches), 1.5 * module.PATIENCE * 0.1)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_missing_one_is_named_to_all(watches: list[Watch], rank: int) -> None:
    watches[rank].stop()
    others = [one for one in watches if one is not watches[rank]]
    assert soon(lambda: all(one.failure for one in others))
    for one in others:
        assert (one.failure.rank, one.failure.host) == (rank, socket.gethostname())
        assert "no sign of life for 2 s" in str(one.failure)


def test_a_broken_connection_shortens_the_patience(watches: list[Watch]) -> None:
    watches[1].stop()
    failure = watches[0].verdict()
    assert "rank 1 of 3" in str(failure) and "no sign of life for 1 s" in str(failure)


def test_the_first_reason_counts(watches: list[Watch]) -> None:
    watches[2].fail(MemoryError("no more\nof it"))
    watches[1].fail(UserError("a consequence"))
    assert soon(lambda: watches[0].failure)
    expected = f"rank 2 of 3 on {socket.gethostname()}: MemoryError: no more; {module.HINT}"
    assert str(watches[0].failure) == expected


def test_the_first_hears_of_signals(watches: list[Watch]) -> None:
    watches[2].ask(15)
    assert soon(lambda: watches[0].asked)
    assert watches[0].asked == [15] and not watches[1].asked


def end(crew: Crew, how: str) -> None:
    crew.agree(Order.GO_ON)
    if how == "raise":
        raise torch.OutOfMemoryError("Tried to allocate 2 GiB")
    os.kill(os.getpid(), signal.Signals[how])
    crew.agree(Order.GO_ON)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("raise", r"rank 1 of 2 on .*: OutOfMemoryError: Tried to allocate 2 GiB; the last"),
        ("SIGKILL", r"rank 1 of 2 ended by SIGKILL; the last checkpoint is whole"),
        ("SIGSTOP", r"rank 1 of 2 on .*: killed, stopped or cut off: no sign of life for 4 s"),
    ],
)
def test_who_fails_is_named(how: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 4)
    with pytest.raises(UserError, match=told), crew_of(2, CPU, end, how) as crew:
        crew.agree(Order.GO_ON)
        crew.add([torch.zeros(1)])
