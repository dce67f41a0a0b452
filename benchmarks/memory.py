"""Peak memory of a piece of work, above what the process holds before it."""

import ctypes
import gc
import re
import resource
from collections.abc import Callable
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_increase(work: Callable[[], object], device: torch.device) -> int:
    """Bytes that `work` needs at its peak beyond those held before: of the GPU, or resident.

    Linux forgets a process's peak when asked to (proc(5), clear_refs); elsewhere the peak of the
    whole process counts, so that small work after large work seems to need nothing.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    _give_back()
    before = _forget_peak()
    work()
    return max(0, _peak() - before)


def _give_back() -> None:
    """Let glibc return what is free, so that it does not count as held."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):  # another C library
        return


def _forget_peak() -> int:
    """Bytes resident now, which are the peak from now on."""
    try:
        CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return _peak()
    return _kilobytes("VmRSS") * 1024


def _peak() -> int:
    if STATUS.exists():
        return _kilobytes("VmHWM") * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _kilobytes(key: str) -> int:
    match = re.search(rf"^{key}:\s+(\d+) kB$", STATUS.read_text(encoding="ascii"), re.M)
    return int(match[1]) if match else 0


def megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f}"
