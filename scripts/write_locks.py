"""Write the locks under requirements/: every package with its version and its files' hashes.

    python scripts/write_locks.py [--torch-cpu WHEEL ...]

Versions are those of constraints.txt. A package that is not pinned there gets the newest version
that fits, and constraints.txt is written again with the pins that are used. So a pin is renewed by
deleting its line. Needs uv (`pip install uv`), and PyPI or a mirror that UV_DEFAULT_INDEX names.

torch comes in two builds of one version: PyPI's, which on Linux needs CUDA's libraries, and the one
for CPUs, which other indexes have. --torch-cpu takes wheels of that build, whose hashes are
written into the lock; without it the lock of that build stays as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "requirements"
CONSTRAINTS = ROOT / "constraints.txt"
OLDEST_PYTHON = "3.11"
# Each has a lock of its own, for what it adds to that of development.
EXTRAS = ("benchmark", "fuzz")
# All extras for users, without those for developers.
FOR_USERS = (
    *("chinese", "export", "firefox", "language-id", "mbr"),
    *("pictures", "report", "serve", "tensorboard", "zstd"),
)
# Builds what has no wheel; installed before the rest, so that it is hash-checked as well.
BUILDER = "setuptools"
TORCH = re.compile(r"torch|triton|nvidia-|cuda-")
HEAD = "# Written by scripts/write_locks.py; do not edit.\n"


@dataclass(frozen=True)
class Locked:
    """One package: its lines in a lock, from its name to its last hash."""

    name: str
    version: str
    lines: str

    @property
    def of_torch(self) -> bool:
        """Whether it is torch, or something that only torch's CUDA build needs."""
        return TORCH.match(self.name) is not None


def parse(text: str) -> list[Locked]:
    """The packages of a lock, in its order."""
    blocks = re.findall(r"^(([\w.-]+)==([^\s;]+)(?:.*\\\n)*.*)$", text, re.M)
    return [Locked(name, version, lines) for lines, name, version in blocks]


def resolve(*extras: str) -> list[Locked]:
    """The requirements of nmtdeep and its extras on every platform and Python, by uv."""
    command = [
        "uv", "pip", "compile", "pyproject.toml", "--universal", "--generate-hashes",
        "--no-header", "--no-annotate", "--python-version", OLDEST_PYTHON,
        "--constraints", CONSTRAINTS.name,
    ]  # fmt: skip
    command += [word for extra in extras for word in ("--extra", extra)]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return parse(done.stdout)


def write(name: str, packages: Iterable[Locked]) -> None:
    """One lock."""
    text = HEAD + "".join(f"{package.lines}\n" for package in packages)
    (LOCKS / name).write_text(text, encoding="utf-8")


def cpu_build(version: str, wheels: Iterable[Path]) -> Locked:
    """torch for CPUs, by the hashes of wheels on disk."""
    build = f"{version}+cpu"
    hashes = []
    for wheel in wheels:
        if not wheel.name.startswith(f"torch-{build}-"):
            raise SystemExit(f"{wheel}: not torch {build}")
        with wheel.open("rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    parts = [f"torch=={build}", *(f"    --hash=sha256:{digest}" for digest in sorted(hashes))]
    return Locked("torch", build, " \\\n".join(parts))


def main() -> None:
    """Resolve what all need and what each extra adds, and write."""
    parser = argparse.ArgumentParser(description="Write requirements/ and constraints.txt")
    parser.add_argument("--torch-cpu", nargs="+", type=Path, metavar="WHEEL", help="to be hashed")
    wheels = parser.parse_args().torch_cpu
    everything, needed = resolve("development", *EXTRAS), resolve("development")
    by_name = {package.name: package for package in needed}
    write("build.txt", [by_name[BUILDER]])
    lean = [package for package in needed if not package.of_torch and package.name != BUILDER]
    # Tests interpret its kernels, with torch for CPUs too.
    write("development.txt", sorted([*lean, by_name["triton"]], key=lambda each: each.name))
    used = {package.name for package in resolve(*FOR_USERS)}
    write("users.txt", (package for package in lean if package.name in used))
    write("torch.txt", (package for package in needed if package.of_torch))
    for extra in EXTRAS:
        added = resolve("development", extra)
        write(f"{extra}.txt", (package for package in added if package.name not in by_name))
    if wheels:
        write("torch-cpu.txt", [cpu_build(by_name["torch"].version, wheels)])
    pinned = [package for package in everything if package.name == "torch" or not package.of_torch]
    pins = {f"{package.name}=={package.version}" for package in pinned}
    comments = [line for line in CONSTRAINTS.read_text().splitlines() if line.startswith("#")]
    lines = [*comments, *sorted(pins, key=lambda pin: pin.split("=="))]
    CONSTRAINTS.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
