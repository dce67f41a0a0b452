"""Time and memory of nmtdeep translate by number of lines.

    python benchmarks/lines.py --model RUN --text FILE [--lines 10000 100000 1000000]
        [OPTION OF TRANSLATE ...]

The lines of FILE are repeated to each number. Every number is a process of its own, and what a user
waits for is measured: reading the model is part of it. Peak memory is that of the process; where
it starts others (--processes, by default one per core for long files), that of the largest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from machine import machine

from nmtdeep.text.files import read_lines


class Spent(NamedTuple):
    seconds: float
    megabytes: float


def repeated(text: Path, count: int, out: Path) -> None:
    with out.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in islice(cycle(read_lines(text)), count))


def run(command: Sequence[str]) -> Spent:
    """Wall-clock time and peak memory of a command that must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return Spent(time.perf_counter() - began, usage.ru_maxrss / unit)


def translate(model: Path, text: Path, count: int, options: Sequence[str]) -> Spent:
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "in"), Path(folder, "out")
        repeated(text, count, source)
        named = ["-m", str(model), "-i", str(source), "-o", str(out), "--quiet"]
        spent = run([sys.executable, "-m", "nmtdeep", "translate", *named, *options])
        found = sum(1 for _ in read_lines(out, empty="allow"))
    if found != count:
        raise SystemExit(f"{count} lines in, {found} lines out")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory by number of lines")
    parser.add_argument("--model", type=Path, required=True, help="run or checkpoint")
    parser.add_argument("--text", type=Path, required=True, help="source lines, raw")
    parser.add_argument("--lines", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    options, passed = parser.parse_known_args()
    print(f"{machine()}; translate {' '.join(passed)}\n")
    print(f"{'lines':>9}  {'seconds':>9}  {'lines/s':>8}  {'peak memory, MB':>15}")
    for count in options.lines:
        spent = translate(options.model, options.text, count, passed)
        rate = count / spent.seconds
        print(
            f"{count:9,}  {spent.seconds:9,.1f}  {rate:8,.1f}  {spent.megabytes:15,.0f}", flush=True
        )


if __name__ == "__main__":
    main()
