"""The memory of this process: freed memory is reused; how much is available."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

MEBIBYTE = 2**20
# Options of glibc's `mallopt` (malloc.h).
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> None:
    """Let glibc reuse freed memory, in huge pages where the system has them.

    Each training step frees and allocates the same gigabyte. By default glibc returns it to the
    system in between and Linux clears each page again, which takes a tenth of a step on a CPU. Call
    this before torch is imported, which reads its own setting once. Settings in the user's
    environment stay. Nothing happens without Linux and glibc, nor under a limit on address space
    (`ulimit -v`), where memory kept for one size would be lost to others.
    """
    if sys.platform != "linux" or _address_space_left() is not None:
        return
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return
    for option, name, value in (
        (MMAP_THRESHOLD, "MALLOC_MMAP_THRESHOLD_", 1024 * MEBIBYTE),
        (TRIM_THRESHOLD, "MALLOC_TRIM_THRESHOLD_", 2047 * MEBIBYTE),
        (TOP_PAD, "MALLOC_TOP_PAD_", 64 * MEBIBYTE),
    ):
        if name not in os.environ:
            mallopt(option, value)
            os.environ[name] = str(value)  # for processes that this one starts


def bound_caches() -> None:
    """Let oneDNN and torch keep what they prepare for 128 shapes of matrices each, not 1,024.

    Translations have ever new shapes, and a shape is up to a megabyte. Call this before torch is
    imported. Settings in the user's environment stay.
    """
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "128")


def give_back() -> None:
    """Return freed memory to the system; without glibc nothing happens.

    The free memory between blocks in use grows slowly in a process that runs for days.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def available() -> int | None:
    """Bytes that this process can still allocate; None where the system does not report it.

    On Linux: the least of free memory, the limit of the control group and that of `ulimit -v`.
    Freed memory that was kept is returned to the system first, so that it counts as free.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    give_back()
    fields = (line.split(":") for line in lines)
    sizes = {name: int(value.split()[0]) * 1024 for name, value in fields}
    free = sizes["MemAvailable"] + sizes.get("SwapFree", 0)
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        group = Path("/sys/fs/cgroup")
        try:
            statistics = (group / used).with_name("memory.stat").read_text().splitlines()
            dropped = next(
                int(line.split()[1]) for line in statistics if line.startswith(f"{cache} ")
            )
            left = int((group / limit).read_text()) - int((group / used).read_text()) + dropped
        except (OSError, ValueError, StopIteration):  # another version, or "max"
            continue
        free = min(free, left)
    space = _address_space_left()
    return free if space is None else min(free, space)


def _address_space_left() -> int | None:
    """Bytes left under this process's limit on address space; None: no limit. Linux only."""
    import resource  # some systems do not have it

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    return most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
