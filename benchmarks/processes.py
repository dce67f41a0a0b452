"""Speed of `nmtdeep translate` in one and in several processes, whole commands in turns.

    python benchmarks/processes.py --model RUN --input FILE [--processes 2] [--repeats 3]

One process has one thread of a CPU, or one GPU, and so has each of several. The time is that from
the start of the command to its end; `work` is the processor time of all its processes together,
which other jobs on the machine change little. The outputs must be the same bytes.
"""

import argparse
import filecmp
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple


class Spent(NamedTuple):
    """Seconds on the clock, and of processors."""

    seconds: float
    work: float


def spent(command: list[str]) -> Spent:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    work = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(time.perf_counter() - began, work)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of translate in several processes")
    parser.add_argument("--model", required=True, help="run or checkpoint")
    parser.add_argument("--input", type=Path, required=True, help="lines to translate")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    options = parser.parse_args()
    lines = options.input.read_bytes().count(b"\n")
    ratios, works = [], []
    with TemporaryDirectory() as folder:
        outputs = [f"{folder}/{count}" for count in (1, options.processes)]
        for _ in range(options.repeats):
            turn = []
            for count, output in zip((1, options.processes), outputs, strict=True):
                command = [sys.executable, "-m", "nmtdeep", "translate", "-q", "--overwrite"]
                command += ["-m", options.model, "-i", str(options.input), "-o", output]
                load = os.getloadavg()[0]
                turn.append(spent([*command, "--device", options.device, f"--processes={count}"]))
                seconds, work = turn[-1]
                print(
                    f"{count} processes: {seconds:.1f} s, {lines / seconds:,.1f} lines/s, "
                    f"work {work:.1f} s, load average at the start {load:.1f}",
                    flush=True,
                )
            if not filecmp.cmp(*outputs, shallow=False):
                sys.exit("the outputs differ")
            ratios.append(turn[0].seconds / turn[1].seconds)
            works.append(turn[1].work / turn[0].work)
    print(
        f"{options.processes} processes over one: {statistics.median(ratios):.2f} times as fast "
        f"({min(ratios):.2f} to {max(ratios):.2f}), {statistics.median(works):.2f} times the "
        f"work; {lines:,} lines, the same bytes"
    )


if __name__ == "__main__":
    main()
