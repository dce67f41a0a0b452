"""A process's memory: kept for its next tensors in place of given back at once; what is free."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

MEBIBYTE = 2**20
# Of glibc's malloc.h: return what is free at the top, ask for so much more, map what is larger.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> None:
    """Have freed memory used again, in huge pages where the system gives them.

    A training step frees and asks for the same gigabyte again and again. By default glibc returns
    it to the system in between and Linux clears each page anew, a tenth of a step on a CPU. To be
    called before torch is imported, which reads its own switch once. What the user has set in the
    environment stays; elsewhere than on Linux with glibc nothing happens, nor under a limit on
    address space (`ulimit -v`), of which what is kept for one size is lost to others.
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


def give_back() -> None:
    """Return to the system what was freed here and kept; with another C library, nothing.

    What lies free between blocks in use grows slowly in a process that works for days.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def available() -> int | None:
    """Bytes that this process could still take before the system ends it; None: nobody says.

    What the system has, and what the control group and `ulimit -v` allow, on Linux. Memory that was
    freed here and kept is given back first, so that it counts as free.
    """
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    give_back()
    sizes = {name: int(rest.split()[0]) * 1024 for name, rest in (one.split(":") for one in lines)}
    free = sizes["MemAvailable"] + sizes.get("SwapFree", 0)
    for limit, used, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        group = Path("/sys/fs/cgroup")
        try:
            statistics = (group / used).with_name("memory.stat").read_text().splitlines()
            dropped = next(int(one.split()[1]) for one in statistics if one.startswith(cache + " "))
            room = int((group / limit).read_text()) - int((group / used).read_text()) + dropped
        except (OSError, ValueError, StopIteration):  # another version, or "max"
            continue
        free = min(free, room)
    left = _address_space_left()
    return free if left is None else min(free, left)


def _address_space_left() -> int | None:
    """Bytes under this process's limit on address space; None: there is no limit. Linux only."""
    import resource  # which not every system has

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    return most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
