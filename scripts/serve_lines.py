"""A long service: lines through `nmtdeep translate` from a pipe, memory and speed as time goes by.

    python scripts/serve_lines.py --model RUN --text FILE [--lines 1000000]
        [OPTION OF TRANSLATE ...]

The lines of FILE come again and again. One thread writes as fast as the pipe takes it, this one
reads. Printed are twenty times, at equal numbers of lines, the lines per second since the last time
and the memory of the process (Linux), then the first quarter beside the last one. Every line must
come back, and equal lines with equal translations: how many did not is counted, for a translation
may change by a rounding with the lines that share its batch. Exit code 1 if a line was lost.
"""

import argparse
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


class Sample(NamedTuple):
    """How it stood after so many lines."""

    lines: int
    seconds: float
    megabytes: float


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
        samples = [Sample(0, 0.0, 0.0)]
        for source, found in zip(cycle(text), process.stdout, strict=False):
            done += 1
            differing += known.setdefault(source, found) != found
            if done % max(1, count // SAMPLES) == 0:
                seconds = time.perf_counter() - began
                samples.append(Sample(done, seconds, memory(process.pid)))
                show(samples[-2], samples[-1])
    print(f"\n{count:,} lines in, {done:,} lines out, exit code {process.returncode}")
    print(f"{differing:,} of them with another translation than the same line before")
    compare(samples)
    return count - done or process.returncode


def show(last: Sample, now: Sample) -> None:
    """A row of the table."""
    rate = (now.lines - last.lines) / (now.seconds - last.seconds)
    print(f"{now.lines:>9,} {now.seconds:>9,.1f} {rate:>9,.1f} {now.megabytes:>9,.0f}", flush=True)


def compare(samples: list[Sample]) -> None:
    """Speed and memory of the first quarter and of the last one, without the start of the first."""
    quarter = len(samples) // 4
    if quarter < 2:
        return
    for name, part in (("first", samples[1 : quarter + 1]), ("last", samples[-quarter:])):
        rate = (part[-1].lines - part[0].lines) / (part[-1].seconds - part[0].seconds)
        print(
            f"{name} quarter: {rate:,.1f} lines/s, at most {max(s.megabytes for s in part):,.0f} MB"
        )


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="A long service through a pipe")
    parser.add_argument("--model", required=True, help="run or checkpoint")
    parser.add_argument("--text", type=Path, required=True, help="source lines, raw")
    parser.add_argument("--lines", type=int, default=1_000_000)
    chosen, passed = parser.parse_known_args()
    named = ["translate", "-m", chosen.model, "--quiet", *passed]
    print(f"translate {' '.join(passed)}\n{'lines':>9} {'seconds':>9} {'lines/s':>9} {'MB':>9}")
    text = list(read_lines(chosen.text))
    return int(serve([sys.executable, "-m", "nmtdeep", *named], text, chosen.lines) != 0)


if __name__ == "__main__":
    sys.exit(main())
