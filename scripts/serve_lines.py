"""A long service: lines through `nmtdeep translate` from a pipe, memory and speed as time goes by.

    python scripts/serve_lines.py --model RUN --text FILE [--lines 1000000]
        [OPTION OF TRANSLATE ...]

The lines of FILE come again and again. One thread writes as fast as the pipe takes it, this one
reads. Printed are twenty times, at equal numbers of lines, the lines per second since the last
time, the lines per second of processor time, which other work on the machine disturbs less, and the
memory of the process (Linux), then the first quarter beside the last one. Every line must
come back, and equal lines with equal translations: how many did not is counted, for a translation
may change by a rounding with the lines that share its batch. Exit code 1 if a line was lost.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import IO, NamedTuple

from nmtdeep.text.files import read_lines

SAMPLES = 20
TICKS = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """How it stood after so many lines."""

    lines: int
    seconds: float
    processor: float
    megabytes: float


def processor(pid: int) -> float:
    """Seconds of processor time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> float:
    """Megabytes that a process holds now."""
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def feed(pipe: IO[bytes], lines: Iterator[str]) -> None:
    """Write every line, then the end."""
    with pipe:
        for line in lines:
            pipe.write(f"{line}\n".encode())


def serve(command: list[str], text: list[str], count: int) -> int:
    """Translate `count` lines; how many were lost."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        lines = islice(cycle(text), count)
        threading.Thread(target=feed, args=(process.stdin, lines), daemon=True).start()
        known: dict[str, bytes] = {}
        differing, done, began = 0, 0, time.perf_counter()
        samples = [Sample(0, 0.0, 0.0, 0.0)]
        for source, found in zip(cycle(text), process.stdout, strict=False):
            done += 1
            differing += known.setdefault(source, found) != found
            if done % max(1, count // SAMPLES) == 0:
                seconds = time.perf_counter() - began
                samples.append(Sample(done, seconds, processor(process.pid), memory(process.pid)))
                show(samples[-2], samples[-1])
    print(f"\n{count:,} lines in, {done:,} lines out, exit code {process.returncode}")
    print(f"{differing:,} of them with another translation than the same line before")
    compare(samples)
    return count - done or process.returncode


def rates(last: Sample, now: Sample) -> tuple[float, float]:
    """Lines per second, and per second of processor time."""
    lines = now.lines - last.lines
    return lines / (now.seconds - last.seconds), lines / max(
        now.processor - last.processor, 1 / TICKS
    )


def show(last: Sample, now: Sample) -> None:
    """A row of the table."""
    by_clock, by_work = rates(last, now)
    print(
        f"{now.lines:>9,} {now.seconds:>9,.1f} {by_clock:>9,.1f} {by_work:>12,.1f} "
        f"{now.megabytes:>9,.0f}",
        flush=True,
    )


def compare(samples: list[Sample]) -> None:
    """Speed and memory of the first quarter and of the last one, without the start of the first."""
    quarter = len(samples) // 4
    if quarter < 2:
        return
    for name, part in (("first", samples[1 : quarter + 1]), ("last", samples[-quarter:])):
        by_clock, by_work = rates(part[0], part[-1])
        print(
            f"{name} quarter: {by_clock:,.1f} lines/s, {by_work:,.1f} lines per second of "
            f"processor time, at most {max(s.megabytes for s in part):,.0f} MB"
        )


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="A long service through a pipe")
    parser.add_argument("--model", required=True, help="run or checkpoint")
    parser.add_argument("--text", type=Path, required=True, help="source lines, raw")
    parser.add_argument("--lines", type=int, default=1_000_000)
    chosen, passed = parser.parse_known_args()
    named = ["translate", "-m", chosen.model, "--quiet", *passed]
    print(f"translate {' '.join(passed)}")
    print(f"{'lines':>9} {'seconds':>9} {'lines/s':>9} {'lines/cpu s':>12} {'MB':>9}")
    text = list(read_lines(chosen.text))
    return int(serve([sys.executable, "-m", "nmtdeep", *named], text, chosen.lines) != 0)


if __name__ == "__main__":
    sys.exit(main())
