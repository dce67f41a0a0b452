"""Starting the ranks of a training by torch's launcher, and joining those of torchrun."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from multiprocessing import active_children
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar, cast
from uuid import uuid4

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from nmtdeep.data.parallel import check_processes
from nmtdeep.devices import resolve_device
from nmtdeep.errors import Problem, UserError
from nmtdeep.training.ranks import RESUME, LostRankError, Ranks

# Ranks wait for each other as long as rank 0 validates.
TIMEOUT = timedelta(days=1)
# Ranks start at the same time, so that one that cannot connect has lost its launcher.
TIME_TO_CONNECT = timedelta(minutes=10)
SECONDS_TO_SAVE = 300
# Seconds that a rank waits after an error to be ended by the launcher: another rank may have failed
# first, which the launcher then names.
GRACE = 5.0
# Seconds after which a second signal means: leave at once. A launcher passes on what the terminal
# has sent to the whole group already.
IMPATIENCE = 1.0
HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # by the launcher
GLOO = "GLOO_SOCKET_IFNAME"  # the network interface that its connections use
T = TypeVar("T")


def is_launched() -> bool:
    """Whether a launcher (torchrun or `launch`) started this process as one of its ranks."""
    return {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


def launch(processes: int, function: Callable[[], T]) -> T:
    """Call `function` in new processes of this machine, the ranks of one training.

    They can find each other by `join_ranks`. If one fails, all are ended. Signals are passed on.
    The function and its result, of which that of rank 0 is returned, can be pickled.

    Raises:
        UserError: the one that was raised in a rank, or that a rank was killed.
        OSError: raised in a rank.
        SystemExit: if a rank left with an exit code, or after a signal.
    """
    check_processes()
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with tempfile.TemporaryDirectory(prefix="nmtdeep-") as folder, _prepared():
        config = LaunchConfig(
            *(1, 1, processes),  # machines, at least and at most, and ranks
            run_id=uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="127.0.0.1",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        # SIGHUP is left to nohup; ranks may be validating or saving. Older torches ignore these.
        config.signals_to_handle, config.shutdown_timeout = "SIGTERM,SIGINT", SECONDS_TO_SAVE
        try:
            return cast(T, elastic_launch(config, _rank)(function)[0])
        except SignalException as stopped:
            for rank_process in active_children():  # the launcher forgets those it was starting
                rank_process.kill()
            raise SystemExit(128 + stopped.sigval) from stopped
        except ChildFailedError as failed:
            raise _error(*failed.get_first_failure(), processes) from failed


def _error(rank: int, failure: Any, processes: int) -> BaseException:
    """What to raise for a rank that failed: its own error, if `_rank` could write it."""
    report = failure.error_file_data
    if "problems" in report:
        return UserError(problems=[Problem(**one) for one in report["problems"]])
    if "os_error" in report:
        return OSError(*report["os_error"])
    if failure.exitcode > 0:  # the rank has printed why
        return SystemExit(failure.exitcode)
    what, where = f"was killed by {failure.signal_name()}", f"rank {rank} of {processes}"
    return UserError(what, where=where, hint=RESUME)


@contextmanager
def _prepared() -> Iterator[None]:
    """Block SIGINT in this thread and in the processes it starts; another thread receives it.

    Ctrl-C would end a rank that still imports torch with Python's traceback. `noted_signals` ends
    this in a rank, and a signal that was sent before then arrives. Afterwards the logger of the
    launcher, which repeats what is raised, and its signal handlers are as before.
    """
    done = threading.Event()
    threading.Thread(target=done.wait).start()
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        logging.disable(disabled)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        done.set()


def _rank(function: Callable[[], T]) -> T:
    """The main function of a new process; writes an error to the file that the launcher reads."""
    torch.set_flush_denormal(True)  # as the command does
    try:
        return function()
    except UserError as error:
        report: dict[str, Any] = {"problems": [asdict(problem) for problem in error.problems]}
    except OSError as error:
        report = {"os_error": (error.errno, error.strerror, str(error.filename or ""))}
    except Exception:
        traceback.print_exc()
        sys.exit(1)
    report["message"] = ""  # which the launcher demands
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(report), encoding="utf-8")
    sys.exit(2)


@contextmanager
def join_ranks(device: str, threads: int | None, signals: Sequence[int]) -> Iterator[Ranks]:
    """This process as one of the ranks that a launcher started, or as the only one.

    Args:
        threads: CPU threads of all ranks of this machine; None leaves each those it has.
        signals: numbers of the signals received so far.

    Raises:
        UserError: if there is no such device, or the ranks do not find each other.
        SystemExit: in a rank that the launcher ends because another one failed.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    numbers = [int(os.environ.get(name, "1")) for name in names] if is_launched() else [0, 1, 0, 1]
    rank, size, local_rank, local_size = numbers
    place = resolve_device(device, rank=local_rank, processes=local_size)
    use_threads(threads, local_size)
    if size == 1:
        yield Ranks(device=place)
        return
    _connect(rank, size, place)
    try:
        yield Ranks(rank, size, local_size=local_size, device=place)
    except Exception as error:
        # A lost rank can be NCCL's RuntimeError, too. Rank 0 reports errors of all ranks.
        if rank > 0 or isinstance(error, LostRankError | RuntimeError):
            latest = time.monotonic() + GRACE
            while time.monotonic() < latest:
                if signals:  # of the launcher: another rank has failed first
                    raise SystemExit(2) from error
                time.sleep(0.05)
        if rank == 0 or not isinstance(error, UserError):
            raise
        where = f"rank {rank} of {size}"
        raise UserError(
            problems=[
                replace(problem, where=": ".join(filter(None, (where, problem.where))))
                for problem in error.problems
            ]
        ) from error
    dist.destroy_process_group()


def _connect(rank: int, size: int, device: torch.device) -> None:
    address, interface = os.environ["MASTER_ADDR"], os.environ.get(GLOO)
    if address == "127.0.0.1":  # nothing outside this machine takes part
        os.environ.setdefault(GLOO, "lo0" if sys.platform == "darwin" else "lo")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    try:
        shared, _, _ = next(rendezvous("env://", timeout=TIME_TO_CONNECT))
        shared.set_timeout(TIMEOUT)
        # Ranks that torchrun restarts may share the store with those before them, whose addresses
        # are still in it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = PrefixStore(f"attempt {attempt}", shared)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    except RuntimeError as error:
        raise UserError(
            f"rank {rank} of {size} could not join the others ({error})",
            hint=f"check that every machine reaches {address}:{os.environ['MASTER_PORT']} and "
            "runs the same command",
        ) from error
    finally:
        if interface is None:
            os.environ.pop(GLOO, None)


def use_threads(threads: int | None, processes: int) -> None:
    """Use one rank's share of the CPU threads; None changes nothing."""
    if threads:
        torch.set_num_threads(max(1, threads // processes))


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """A list that gets the numbers of SIGINT and SIGTERM; a second one, later, ends at once."""
    signals: list[int] = []
    first = 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if not signals:
            first = time.monotonic()
        elif time.monotonic() > first + IMPATIENCE:
            raise KeyboardInterrupt
        signals.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        yield signals
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
