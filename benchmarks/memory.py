"""Peak memory of a piece of work, above what the process holds before it."""

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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


def megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f}"
