"""How several processes come together: started here on one machine, or by torchrun on many."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    Store,
    TCPStore,
    rendezvous,
)

from nmtdeep.devices import resolve_device
from nmtdeep.errors import DivergenceError, OutOfMemoryError, UserError
from nmtdeep.training.distributed import ALONE, PATIENCE, Crew, LostProcessError
from nmtdeep.training.watch import EXIT_CODE, HINT, Failure, Watch

ARRIVAL = timedelta(minutes=10)
SECONDS_TO_LEAVE = 20


@dataclass(frozen=True)
class Torchrun:
    """What torchrun tells each process that it starts, by environment variables.

    Attributes:
        rank: of all processes on all machines; 0 decides.
        size: how many there are on all machines.
        local_rank: on this machine.
        local_size: on this machine.
        address: of the store that all of them share.
        port: of that store.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int

    @classmethod
    def here(cls) -> Torchrun | None:
        """What it told this process; None if this was started in another way."""
        found = os.environ
        if not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= found.keys():
            return None
        return cls(
            rank=int(found["RANK"]),
            size=int(found["WORLD_SIZE"]),
            local_rank=int(found["LOCAL_RANK"]),
            local_size=int(found.get("LOCAL_WORLD_SIZE", "1")),
            address=found["MASTER_ADDR"],
            port=int(found["MASTER_PORT"]),
        )


def device_of(name: str, *, rank: int, processes: int) -> torch.device:
    """The device of one process: with several on GPUs, each has its own, in order.

    Args:
        rank: among the processes of this machine.
        processes: of this machine.

    Raises:
        UserError: if there is no such device, or not one for each process.
    """
    if processes > 1 and name in ("auto", "cuda") and torch.cuda.is_available():
        if processes > torch.cuda.device_count():
            raise UserError(
                f"{processes} processes need as many GPUs, here are {torch.cuda.device_count()}: "
                "give fewer --processes, or torchrun a smaller --nproc-per-node"
            )
        return resolve_device(f"cuda:{rank}")
    device = resolve_device(name)
    if processes > 1 and device.type == "cuda":
        raise UserError(f"--device {name} is one GPU: give --device cuda for several processes")
    return device


@contextmanager
def own_threads(threads: int | None, processes: int) -> Iterator[None]:
    """One process's share of the CPU threads, and all of them afterwards; None changes nothing."""
    everything = threads or torch.get_num_threads()
    if threads:
        torch.set_num_threads(max(1, threads // processes))
    try:
        yield
    finally:
        torch.set_num_threads(everything)


@contextmanager
def joined(told: Torchrun, device: torch.device) -> Iterator[Crew]:
    """The processes that torchrun started, this one among them.

    Raises:
        UserError: if one of them failed or does not come.
        SystemExit: the same, in a process that leaves the saying of it to another one.
    """
    if told.size == 1:
        yield ALONE
        return
    try:
        shared, rank, size = next(rendezvous("env://", timeout=ARRIVAL))
        # What torchrun starts anew may share the store with those before it, whose addresses are
        # still there.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"attempt {attempt}", shared)
        _await_all(store, rank, size)
        _join_group(store, device.type, rank, size)
        nonce = Crew(rank, size).tell(secrets.token_hex(8))
        beside = TCPStore(told.address, told.port, is_master=False, timeout=ARRIVAL)
    except (LostProcessError, dist.DistError) as error:
        raise UserError(
            f"rank {told.rank} of {told.size} could not join the others: "
            f"{str(error).partition(chr(10))[0]}: see that every machine reaches "
            f"{told.address}:{told.port}, and that all run the same command"
        ) from error
    watch = Watch(PrefixStore(nonce, beside), rank, size, speaks=told.local_rank == 0)
    watch.start()
    # The first one decides when to leave. torchrun sends SIGTERM to all once one is dead, which
    # must not keep the others from saying who it was.
    before = {
        number: signal.signal(number, lambda number, frame: watch.ask(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield Crew(rank, size, local_rank=told.local_rank, local_size=told.local_size, watch=watch)
    except BaseException as error:
        _explain(error, watch, rank)
        raise
    watch.stop()
    _close_group()
    for number, handler in before.items():
        signal.signal(number, handler)


def _await_all(store: Store, rank: int, size: int) -> None:
    """Wait until every process has come, so that those who join need not wait for long."""
    store.set(f"here {rank}", "")
    keys = {one: f"here {one}" for one in range(size)}
    try:
        store.wait(list(keys.values()), ARRIVAL)
    except dist.DistError as error:
        absent = ", ".join(str(one) for one, key in keys.items() if not store.check([key]))
        raise LostProcessError(f"no sign of rank {absent} in {ARRIVAL}") from error


def _explain(error: BaseException, watch: Watch, rank: int) -> None:
    """Tell the others of a failure, or raise what they told; each is said once on a machine."""
    failure = _failure_behind(error, watch)
    if failure or isinstance(error, LostProcessError):
        watch.take_over()
        if failure is None:
            raise UserError(f"a process was lost ({error}); {HINT}") from error
        if rank and not watch.speaks_of(failure):
            raise SystemExit(EXIT_CODE) from error
        raise UserError(str(failure)) from error
    watch.fail(error)
    if rank and isinstance(error, (DivergenceError, OutOfMemoryError)):  # the first one says it
        raise SystemExit(EXIT_CODE) from error
    if rank and isinstance(error, UserError):
        raise UserError(f"rank {rank}: {error}") from error


def _failure_behind(error: BaseException, watch: Watch) -> Failure | None:
    """Who failed, if `error` is what a broken connection to another process raises."""
    plain = type(error) in (RuntimeError, dist.DistBackendError, dist.DistNetworkError)
    return watch.verdict() if plain or isinstance(error, LostProcessError) else None


@contextmanager
def crew_of(
    size: int, device: torch.device, assist: Callable[..., None], *arguments: Any
) -> Iterator[Crew]:
    """This process and `size` - 1 new ones, each of which calls `assist(crew, *arguments)`.

    Args:
        device: of the model; its type chooses between Gloo and NCCL.
        assist: a function of a module, with arguments that can be pickled.

    Raises:
        UserError: if one of the others ended before its time.
    """
    if size == 1:
        yield ALONE
        return
    # Loopback only: nothing outside this machine takes part.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    store = TCPStore("127.0.0.1", 0, size, is_master=True, wait_for_workers=False)
    processes = [
        get_context("spawn").Process(
            target=_work, args=(rank, size, store.port, device.type, assist, arguments), daemon=True
        )
        for rank in range(1, size)
    ]

    def free() -> None:
        for process in processes:  # closes connections that the main thread waits on
            process.kill()

    watch = Watch(_beside(store.port), 0, size, speaks=True, on_loss=free)
    for process in processes:
        process.start()
    try:
        _await_spawned(store, processes)
        _join_group(store, device.type, 0, size)
        watch.start()
        yield Crew(0, size, watch=watch)
        watch.stop()
        for process in processes:  # they were told to leave
            process.join(SECONDS_TO_LEAVE)
    except RuntimeError as error:
        lost = _loss(processes, watch, certain=isinstance(error, LostProcessError))
        if lost is None:
            raise
        raise lost from error
    finally:
        watch.take_over()
        for process in processes:
            process.kill()
            process.join()
        _close_group()
        watch.stop()


def _beside(port: int) -> Store:
    """A connection for the watch, whose questions must not wait for those of others."""
    return PrefixStore("watch", TCPStore("127.0.0.1", port, is_master=False))


def _await_spawned(store: Store, processes: list[SpawnProcess]) -> None:
    """Wait until every process is there, or one is gone."""
    for rank, process in enumerate(processes, 1):
        while not store.check([f"here {rank}"]):
            if process.exitcode is not None:
                raise LostProcessError("ended before the first update")
            time.sleep(0.05)


def _join_group(store: Store, kind: str, rank: int, size: int) -> None:
    backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    except RuntimeError as error:
        raise LostProcessError(str(error)) from error


def _loss(processes: list[SpawnProcess], watch: Watch, *, certain: bool) -> UserError | None:
    """Who ended, by its own words if it had any, else by its exit code.

    None if nobody did; that may be unless it is `certain`.
    """
    latest = time.monotonic() + 1
    while not (watch.told() or any(process.exitcode for process in processes)):
        if time.monotonic() > latest:
            break
        time.sleep(0.05)
    ended = [
        f"rank {rank} of {len(processes) + 1} {_how(process.exitcode)}"
        for rank, process in enumerate(processes, 1)
        if process.exitcode
    ]
    failure = watch.failure or (watch.verdict() if certain and not ended else None)
    if failure:
        return UserError(str(failure))
    if not (certain or ended):
        return None
    return UserError(f"{'; '.join(ended) or 'a process was lost'}; {HINT}")


def _how(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


def _close_group() -> None:
    """Give the connections back.

    Gloo may wait for ever in closing them (seen once, torch 2.6, while the other side closed too),
    so that a thread does it, which may stay behind.
    """
    if dist.is_initialized():
        closing = threading.Thread(target=dist.destroy_process_group, daemon=True)
        closing.start()
        closing.join(SECONDS_TO_LEAVE)


def _work(
    rank: int, size: int, port: int, kind: str, assist: Callable[..., None], arguments: Any
) -> None:
    """What a new process does; the first one tells of what both see."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the first one decides when to leave
        signal.signal(number, signal.SIG_IGN)
    watch = None
    try:
        store = TCPStore("127.0.0.1", port, size, is_master=False)
        watch = Watch(_beside(port), rank, size, speaks=False)
        store.set(f"here {rank}", "")
        _join_group(store, kind, rank, size)
        watch.start()
        assist(Crew(rank, size, watch=watch), *arguments)
        os._exit(0)  # without closing connections, which the first process may be doing
    except BaseException as error:
        failure = _failure_behind(error, watch) if watch else None
        if failure and failure.rank == 0:
            print(f"nmtdeep: error: {failure}", file=sys.stderr, flush=True)
        if failure or isinstance(error, LostProcessError):
            os._exit(EXIT_CODE)
        if watch:
            watch.fail(error)
        if not isinstance(error, UserError):
            traceback.print_exc()
        os._exit(EXIT_CODE if isinstance(error, UserError) else 1)
