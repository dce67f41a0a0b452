"""The machine that the figures of a benchmark depend on, and the options of all benchmarks."""

import argparse
import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import nmtdeep
from nmtdeep.devices import native_bf16, resolve_device
from nmtdeep.errors import UserError
from nmtdeep.memory import keep_memory

PEERS = ("transformers", "ctranslate2")


def machine(device: torch.device | None = None) -> str:
    """Date, processor, load, threads and versions, in one line."""
    cpu, flags = platform.processor() or platform.machine(), ""
    information = Path("/proc/cpuinfo")
    if information.exists():
        fields = dict(re.findall(r"^(model name|flags)\s*: (.*)$", information.read_text(), re.M))
        cpu = fields.get("model name", cpu)
        names = ("avx512f", "avx512_bf16", "amx_bf16")
        flags = " ".join(flag for flag in names if flag in fields.get("flags", "").split())
    gpu = ""
    if device is not None and device.type == "cuda":
        gpu = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}; "
    versions = "".join(f", {name} {number}" for name in PEERS if (number := installed(name)))
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {gpu}{cpu} ({flags or 'no AVX-512'}), "
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads, load average "
        f"{os.getloadavg()[0]:.1f} at the start; nmtdeep {nmtdeep.__version__}, "
        f"torch {torch.__version__}{versions}, numpy {np.__version__}, "
        f"Python {platform.python_version()}"
    )


def installed(package: str) -> str | None:
    """The version of a package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def native_precisions(device: torch.device) -> list[str]:
    """The number formats that the device does not emulate."""
    return ["fp32", "bf16"] if native_bf16(device) else ["fp32"]


def add_options(parser: argparse.ArgumentParser, *, repeats: int) -> None:
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    parser.add_argument("--repeats", type=int, default=repeats, help="turns of each contender")


def chosen_device(options: argparse.Namespace, *, keeps_memory: bool) -> torch.device:
    """The device of these options; their threads take effect.

    The process keeps freed memory as the command nmtdeep does, unless it is a peer's own. Peers
    that share the process profit as well, which no user of theirs would.
    """
    if keeps_memory:
        keep_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    try:
        return resolve_device(options.device)
    except UserError as error:
        sys.exit(str(error))


def empty_table(title: str, caption: str, headings: Sequence[str]) -> Table:
    """An empty table: names to the left, numbers to the right."""
    table = Table(title=title, caption=caption)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def opening(options: argparse.Namespace) -> tuple[torch.device, Console]:
    """The device of these options, and a console on which the machine has been described."""
    device = chosen_device(options, keeps_memory=False)
    console = Console(width=112, highlight=False)
    console.print(machine(device))
    return device, console
