"""Freed memory is reused, by a count of the pages that the system provided."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from nmtdeep.memory import available

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


def new_pages(how: str) -> int:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", CODE, how]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_used_again():
    # By default most tensors are returned to the system and allocated again.
    assert new_pages("keep") < new_pages("leave") / 3


@pytest.mark.skipif(sys.platform != "linux", reason="another system")
def test_the_limit_on_this_process_is_the_available_memory():
    limited = (
        "import resource; from nmtdeep.memory import available; most = 512 * 2**20; "
        "resource.setrlimit(resource.RLIMIT_AS, (most, most)); print(available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited], capture_output=True, text=True, check=True
    )
    assert 256 * 2**20 < int(done.stdout) < 512 * 2**20


GIGABYTE = 2**30
JOB = "slurm/uid_1000/job_7/step_0"
# Files of a group: limit, use, and cache that is dropped where memory runs short.
SECOND = "sys/fs/cgroup", ("memory.max", "memory.current"), "inactive_file"
FIRST = (
    "sys/fs/cgroup/memory",
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    "total_inactive_file",
)
NO_LIMIT = {SECOND: "max", FIRST: str(2**63 - 4096)}


@pytest.fixture
def machine(tmp_path):
    """A root folder that says: 64 GiB are free."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {64 * 2**20} kB\n")
    return tmp_path


def limit(machine: Path, version: tuple, group: str, most: object, used: int, cache: int) -> None:
    mount, names, kept = version
    folder = machine / mount / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (most, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"anon 1\nactive_file 2\n{kept} {cache}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="another system")
@pytest.mark.parametrize(
    ("version", "lines"),
    [
        (SECOND, f"0::/{JOB}\n"),
        (FIRST, f"9:name=systemd:/x\n4:cpu,memory:/{JOB}\n0::/\n"),
        (SECOND, f"0::/../{JOB}\n"),  # seen from a container that is not its root
        (FIRST, "4:memory:/docker/0123\n"),  # a container that sees the host's path
    ],
    ids=["version 2", "version 1", "outside the root", "absent folder"],
)
def test_the_least_of_all_groups_above_is_available(machine, version, lines):
    (machine / "proc/self/cgroup").write_text(lines)
    assert available(machine) == 64 * GIGABYTE
    limit(machine, version, "", 40 * GIGABYTE, 9 * GIGABYTE, GIGABYTE)
    assert available(machine) == 32 * GIGABYTE
    if JOB not in lines or "/.." in lines:
        return
    limit(machine, version, JOB, NO_LIMIT[version], 5, 0)
    assert available(machine) == 32 * GIGABYTE
    limit(machine, version, "slurm/uid_1000/job_7", 8 * GIGABYTE, 7 * GIGABYTE, GIGABYTE // 2)
    assert available(machine) == 3 * GIGABYTE // 2
    limit(machine, version, "slurm", 16 * GIGABYTE, 4 * GIGABYTE, 0)
    assert available(machine) == 3 * GIGABYTE // 2
    limit(machine, version, JOB, 2 * GIGABYTE, GIGABYTE, 0)
    assert available(machine) == GIGABYTE
    limit(machine, version, "other", 1, 1, 0)  # this process is not in it
    assert available(machine) == GIGABYTE


@pytest.mark.skipif(sys.platform != "linux", reason="another system")
def test_a_group_without_statistics_counts_all_its_use(machine):
    (machine / "proc/self/cgroup").write_text("0::/job\n")
    limit(machine, SECOND, "job", 3 * GIGABYTE, GIGABYTE, 0)
    (machine / "sys/fs/cgroup/job/memory.stat").unlink()
    assert available(machine) == 2 * GIGABYTE
