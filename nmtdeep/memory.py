"""Memory that a process keeps for its next tensors in place of giving it back at once."""

from __future__ import annotations

import ctypes
import os
import sys

MEBIBYTE = 2**20
# Of glibc's malloc.h: return what is free at the top, ask for so much more, map what is larger.
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3


def keep_memory() -> None:
    """Have freed memory used again, in huge pages where the system gives them.

    A training step frees and asks for the same gigabyte again and again. By default glibc returns
    it to the system in between and Linux clears each page anew, a tenth of a step on a CPU. To be
    called before torch is imported, which reads its own switch once. What the user has set in the
    environment stays; elsewhere than on Linux with glibc nothing happens.
    """
    if sys.platform != "linux":
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
