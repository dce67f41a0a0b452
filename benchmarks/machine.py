"""What the figures of a benchmark depend on."""

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import nmtdeep


def machine() -> str:
    """Date, processor, load and versions, in one line."""
    cpu, flags = platform.processor() or platform.machine(), ""
    information = Path("/proc/cpuinfo")
    if information.exists():
        found = dict(re.findall(r"^(model name|flags)\s*: (.*)$", information.read_text(), re.M))
        cpu = found.get("model name", cpu)
        wanted = ("avx512f", "avx512_bf16", "amx_bf16")
        flags = " ".join(flag for flag in wanted if flag in found.get("flags", "").split())
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC; {cpu} ({flags or 'no AVX-512'}), "
        f"{os.cpu_count()} cores, load average "
        f"{os.getloadavg()[0]:.1f} at the start; nmtdeep {nmtdeep.__version__}, "
        f"torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    )
