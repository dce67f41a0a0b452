"""Freed memory is reused, by a count of the pages that the system provided."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

CODE = """
import sys
from nmtdeep.memory import keep_memory
if sys.argv[1] == "keep":
    keep_memory()
import resource
import torch
def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    held = [torch.ones(6 * 2**20) for _ in range(8)]  # 24 MiB each
work()
before = pages()
for _ in range(5):
    work()
print(pages() - before)
"""
OURS = (
    "THP_MEM_ALLOC_ENABLE",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
)


def new_pages(how: str, **environment: str) -> int:
    clean = {name: value for name, value in os.environ.items() if name not in OURS}
    command = [sys.executable, "-c", CODE, how]
    done = subprocess.run(
        command, env=clean | environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again() -> None:
    # By default most tensors are returned to the system and allocated again.
    assert new_pages("keep") < new_pages("leave") / 3


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_settings_of_the_user_stay() -> None:
    kept = new_pages("keep", MALLOC_TRIM_THRESHOLD_="0", MALLOC_MMAP_THRESHOLD_="65536")
    assert kept > 5 * 8 * 24 * 2**20 // (2 * 2**20)  # each page or each huge page, every time


@pytest.mark.skipif(sys.platform != "linux", reason="another system")
def test_the_limit_on_this_process_is_the_available_memory() -> None:
    limited = (
        "import resource; from nmtdeep.memory import available; most = 512 * 2**20; "
        "resource.setrlimit(resource.RLIMIT_AS, (most, most)); print(available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited], capture_output=True, text=True, check=True
    )
    assert 256 * 2**20 < int(done.stdout) < 512 * 2**20
