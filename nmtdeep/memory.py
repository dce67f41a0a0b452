"""The memory of this process: freed memory is reused; how much is available."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

MEBIBYTE = 2**20
# Options of glibc's `mallopt` (malloc.h).
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3

# Control groups of versions 2 and 1: their folder, and their files memory.*: limit, use, and the
# line of memory.stat with cache that can be dropped.
GROUPS = {
    "": ("", "max", "current", "inactive_file"),
    "memory": ("memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
}


def keep_memory() -> None:
    """Let glibc reuse freed memory, in huge pages where the system has them.

    By default glibc returns it to the system in between steps and Linux clears each page again,
    which takes a tenth of a step on a CPU. Call this before torch is imported, which reads its own
    setting once. Settings in the user's environment stay. Nothing happens under a limit on address
    space (`ulimit -v`), where memory kept for one size would be lost to others.
    """
    if sys.platform != "linux" or address_space_left() is not None:
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


def forget_peak() -> None:
    """Let Linux count this process's peak of resident memory anew (proc(5), clear_refs)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def resident() -> int:
    """Bytes of this process in memory, without what it has freed; 0 where it is not reported."""
    give_back()
    with suppress(OSError):
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def available(root: Path = Path("/")) -> int | None:
    """Bytes that this process can still allocate; None where the system does not report it.

    On Linux: the least of free memory, the limits of its control group and of those that this one
    is in (a container, a job of Slurm, a slice of systemd), and that of `ulimit -v`. Freed memory
    is returned to the system first, so that it counts as free. `root` has the system's files.
    """
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    give_back()
    fields = (line.split(":") for line in lines)
    sizes = {name: int(value.split()[0]) * 1024 for name, value in fields}
    free = min([sizes["MemAvailable"] + sizes.get("SwapFree", 0), *_left_in_groups(root)])
    space = address_space_left()
    return free if space is None else min(free, space)


def _left_in_groups(root: Path) -> Iterator[int]:
    """Bytes left under the limit of each control group that this process is in.

    /proc/self/cgroup has `0::/job` in version 2 and `4:memory:/job` in version 1. In a container
    the folder of the group may be absent, and the root has the container's limit.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for controllers, group in (line.split(":", 2)[1:] for line in lines):
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, used, cache = GROUPS["memory" if controllers else ""]
        place = PurePosixPath(group.lstrip("/"))
        for inside in (place, *place.parents):
            memory = root / "sys/fs/cgroup" / folder / inside / "memory"
            with suppress(OSError, ValueError):  # absent, or "max"
                left = int(memory.with_suffix(f".{limit}").read_text())
                left -= int(memory.with_suffix(f".{used}").read_text())
                statistics = memory.with_suffix(".stat")
                kept = statistics.read_text() if statistics.is_file() else ""
                yield left + sum(map(int, re.findall(rf"^{cache} (\d+)$", kept, re.M)))


def address_space_left() -> int | None:
    """Bytes left under this process's limit on address space; None: no limit. Linux only."""
    import resource  # some systems do not have it

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        return None
    return most - int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
