"""Several processes that train one model together, on one machine.

Every process holds the whole model, computes its share of an update's batches, and after the sum of
all gradients takes the same step. The first one alone decides, writes and speaks.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.context import SpawnProcess
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from nmtdeep.decoding.settings import resolve_device
from nmtdeep.errors import DivergenceError, UserError

# A dead process closes its connections and is noticed at once; waiting is for validations.
PATIENCE = timedelta(days=7)
BUCKET = 16 * 2**20
SECONDS_TO_LEAVE = 20


class LostProcessError(RuntimeError):
    """Another process of the crew is gone."""


class Crew:
    """The processes of a training as one of them sees it; by default it is alone.

    Args:
        rank: its number; 0 decides.
        size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    def add(self, tensors: list[Tensor]) -> None:
        """Replace each tensor by its sum over all processes, the same bits in each of them.

        The tensors have one dtype and device; they travel in buckets of a few million numbers.

        Raises:
            LostProcessError: if another process died.
        """
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.flatten() for tensor in bucket])
            _together(dist.all_reduce, flat)
            first = 0
            for tensor in bucket:
                tensor.copy_(flat[first : first + tensor.numel()].view_as(tensor))
                first += tensor.numel()

    def agree(self, leaving: bool) -> bool:
        """The first process's `leaving`, in all of them.

        Raises:
            LostProcessError: if another process died.
        """
        if self.size == 1:
            return leaving
        told = torch.tensor([leaving], dtype=torch.uint8)
        _together(dist.broadcast, told, src=0)
        return bool(told)


ALONE = Crew()


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    held = 0
    for tensor in tensors:
        if bucket and held + tensor.numel() > BUCKET:
            yield bucket
            bucket, held = [], 0
        bucket.append(tensor)
        held += tensor.numel()
    if bucket:
        yield bucket


def _together(operation: Callable[..., Any], tensor: Tensor, **options: Any) -> None:
    try:
        operation(tensor, **options)
    except RuntimeError as error:
        raise LostProcessError(str(error)) from error


def device_of(name: str, *, rank: int, processes: int) -> torch.device:
    """The device of one process: with several on GPUs, each has its own, in order.

    Raises:
        UserError: if there is no such device, or not one for each process.
    """
    device = resolve_device(name)
    if processes == 1 or device.type == "cpu":
        return device
    if device.index is not None and ":" in name:
        raise UserError(f"--device {name} is one GPU: give --device cuda with --processes")
    if processes > torch.cuda.device_count():
        raise UserError(
            f"{processes} processes need as many GPUs, here are {torch.cuda.device_count()}: give "
            "fewer --processes"
        )
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank)


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
    for process in processes:
        process.start()
    try:
        _await(store, processes)
        _join_group(store, device.type, 0, size)
        yield Crew(0, size)
        for process in processes:  # they were told to leave
            process.join(SECONDS_TO_LEAVE)
    except LostProcessError as error:
        raise _loss(processes) from error
    finally:
        _part(processes)


def _await(store: TCPStore, processes: list[SpawnProcess]) -> None:
    """Wait until every process is there, or one is gone."""
    for rank, process in enumerate(processes, 1):
        while not store.check([f"here {rank}"]):
            if process.exitcode is not None:
                raise LostProcessError("ended before the first update")
            time.sleep(0.05)


def _join_group(store: TCPStore, kind: str, rank: int, size: int) -> None:
    backend = "cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo"
    try:
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    except RuntimeError as error:
        raise LostProcessError(str(error)) from error


def _loss(processes: list[SpawnProcess]) -> UserError:
    for process in processes:
        process.join(1)
    ended = [
        f"process {rank} of {len(processes) + 1} ended with code {process.exitcode}"
        for rank, process in enumerate(processes, 2)
        if process.exitcode is not None
    ]
    return UserError(
        f"{'; '.join(ended) or 'a process was lost'}: its own message, if any, stands above; the "
        "last checkpoint is whole, and the same command goes on from there"
    )


def _part(processes: list[SpawnProcess]) -> None:
    """End whoever is still there, then give the connections back.

    Gloo may wait for ever in closing them (seen once, torch 2.6, while the other side closed too),
    so that a thread does it, which may stay behind.
    """
    for process in processes:
        process.kill()
        process.join()
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
    try:
        store = TCPStore("127.0.0.1", port, size, is_master=False)
        store.set(f"here {rank}", "")
        _join_group(store, kind, rank, size)
        assist(Crew(rank, size), *arguments)
        os._exit(0)  # without closing connections, which the first process may be doing
    except (LostProcessError, DivergenceError):
        os._exit(0)
    except UserError as error:
        print(f"process {rank + 1} of {size}: {error}", file=sys.stderr)
        os._exit(2)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
