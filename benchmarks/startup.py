"""Time until nmtdeep --help has answered, as a user waits for it: whole processes.

python benchmarks/startup.py [--runs N]
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Time of nmtdeep --help")
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    script = Path(sys.executable).with_name("nmtdeep")
    nmtdeep = [str(script)] if script.exists() else [sys.executable, "-m", "nmtdeep"]
    print(
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; Python {platform.python_version()}, "
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; "
        f"{runs} processes each after one to warm up"
    )
    for name, command in {
        "nmtdeep --help": [*nmtdeep, "--help"],
        "nmtdeep train --help": [*nmtdeep, "train", "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }.items():
        seconds(command)
        times = [seconds(command) for _ in range(runs)]
        print(
            f"{name:22} median {statistics.median(times):.3f} s  "
            f"({min(times):.3f} to {max(times):.3f})"
        )
