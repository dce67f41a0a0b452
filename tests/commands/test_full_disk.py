"""A full file system: one line with a hint, and existing files are intact."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands.running import Finished
from commands.runs import contents, files, words
from nmtdeep.errors import UserError
from nmtdeep.files import replace_file

pytestmark = pytest.mark.usefixtures("data")


@dataclass(frozen=True)
class Disk:
    """A file system of its own at `path`."""

    path: Path

    def mount(self, options: str) -> bool:
        """Whether it could be mounted, or mounted again, with these options."""
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def leave(self, kilobytes: int) -> None:
        """Fill it, except for so much."""
        free = shutil.disk_usage(self.path).free
        (self.path / "filler").write_bytes(bytes(max(0, free - 1024 * kilobytes)))

    def free(self) -> None:
        (self.path / "filler").unlink()


@pytest.fixture
def disk(tmp_path):
    disk = Disk(tmp_path / "disk")
    disk.path.mkdir()
    if shutil.which("mount") is None or not disk.mount("size=4m"):
        pytest.skip("mounting a small file system is not allowed here")
    yield disk
    subprocess.run(["umount", "-l", str(disk.path)], check=True)


def fails(done: Finished, *parts: str) -> None:
    """Exit code 2; the last line on stderr is the only error."""
    assert done.code == 2, (done.code, done.err)
    *before, last = done.err.splitlines()
    assert last.startswith("nmtdeep: error: "), done.err
    assert not any("rror" in line or "Traceback" in line for line in before), done.err
    assert all(part in last for part in parts), last


FULL = "No space left on device"
PREPROCESS = ("--train", "train", "--valid", "valid", "--workers", 1, "-q", "--overwrite", "--out")


def test_an_average_that_is_replaced_stays_whole(nmtdeep, whole, disk):
    out = disk.path / "average"
    command = ("average-checkpoints", whole, "-o", out, "--overwrite", "--last")
    assert nmtdeep(*command, 1).code == 0
    before = files(out)
    disk.leave(20)
    fails(nmtdeep(*command, 2), FULL)
    assert files(out) == before
    disk.free()
    assert nmtdeep(*command, 2).code == 0
    assert files(out) != before
    assert list(disk.path.iterdir()) == [out]


def test_a_file_that_is_replaced_stays_whole(disk):
    out = disk.path / "out"
    out.write_text("old")
    disk.leave(4)
    with pytest.raises((OSError, UserError), match=FULL), replace_file(out) as partial:
        partial.write_bytes(bytes(100_000))
    disk.free()
    assert [path.read_text() for path in disk.path.iterdir()] == ["old"]


def test_translate_resumes_when_there_is_space_again(nmtdeep, whole, disk):
    out = disk.path / "out"
    options = ("--n-best", 4, "--format", "json", "-q", "-o")
    command = ("translate", "-m", whole, "-i", "valid.en", *options)
    assert nmtdeep(*command, disk.path.parent / "whole").code == 0
    expected = (disk.path.parent / "whole").read_bytes()
    disk.leave(4)
    fails(nmtdeep(*command, out), f"{out}: cannot be written: {FULL}")
    there = out.read_bytes()
    assert there and there == expected[: len(there)] != expected
    disk.free()
    assert nmtdeep(*command, out, "--resume").code == 0
    assert out.read_bytes() == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_printing(nmtdeep, whole):
    for command in (
        ("recipes", "list"),
        ("score", "test.de", "test.de"),
        ("translate", "-m", whole, "-i", "test.en"),
        ("analyze", "initialization", "tiny.yaml", "--data", "data", "--tokens", 50, "--json"),
    ):
        fails(nmtdeep(*command, stdout=Path("/dev/full")), FULL)


def test_a_read_only_file_system(nmtdeep, whole, disk):
    run, data, out = (disk.path / name for name in ("run", "data", "out"))
    shutil.copytree(whole, run, symlinks=True)
    shutil.copytree(nmtdeep.folder / "data", data)
    assert disk.mount("remount,ro")
    fails(nmtdeep("preprocess", "tiny.yaml", *PREPROCESS, data), "Read-only")
    fails(nmtdeep(*words(str(run))), "Read-only")
    fails(nmtdeep("grow", whole, "--out", out, "--layers", 3), "Read-only")
    fails(nmtdeep("average-checkpoints", run, "--last", 2, "--overwrite"), "Read-only")
    translate = ("translate", "-m", run, "-i", "test.en")
    fails(nmtdeep(*translate, "-o", out), "Read-only")
    assert nmtdeep(*translate).code == 0
    assert contents(run) == contents(whole)
