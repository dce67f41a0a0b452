"""Energy that a training takes, from the counters of GPUs (NVML) and processors (RAPL).

A counter is of a whole device: work of others on it counts too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmtdeep.training.ranks import Ranks
from nmtdeep.training.state import Progress
from nmtdeep.units import kwh

POWERCAP = Path("/sys/class/powercap")


def counter(
    read: Callable[[], float], *, joules: float, wraps_at: float = 0.0
) -> Callable[[], float]:
    """A function to the joules since its last call, from a reading that grows until it wraps.

    Args:
        read: the reading in units of `joules`.
        wraps_at: the reading after which it begins again at 0.
    """
    last = read()

    def since() -> float:
        nonlocal last
        before, last = last, read()
        return (last - before + (wraps_at if last < before else 0.0)) * joules

    return since


class Meter:
    """The counters of what this machine's ranks use; those that cannot be read are left out.

    Rank 0 reads them; of a training on several machines, those of its own.
    """

    def __init__(self, ranks: Ranks) -> None:
        gpus = list(gpu_counters(devices(ranks))) if ranks.is_first else []
        processors = list(processor_counters()) if ranks.is_first else []
        self._counters = [*gpus, *processors]
        names = {"GPU": len(gpus), "processor": len(processors)}
        self.counted_by = " and ".join(name for name, number in names.items() if number)

    def counted(self, progress: Progress) -> Progress:
        """With the energy since the last call, or since the meter was made."""
        if not self._counters:
            return progress
        return replace(
            progress, joules=(progress.joules or 0.0) + sum(since() for since in self._counters)
        )

    def summary(self, progress: Progress) -> str:
        """The energy so far, and which devices count it here."""
        parts = [] if progress.joules is None else [kwh(progress.joules)]
        return f"energy      {', '.join([*parts, self.counted_by or 'not readable here'])}"


def devices(ranks: Ranks) -> Sequence[int]:
    """The numbers of the GPUs of this machine's ranks."""
    if ranks.device.type != "cuda":
        return []
    return range(ranks.local_size) if ranks.size > 1 else [ranks.device.index]


def gpu_counters(numbers: Sequence[int]) -> Iterator[Callable[[], float]]:
    """Of NVIDIA's GPUs with these numbers among torch's, from Volta on, in millijoules."""
    try:
        import pynvml
    except ImportError:
        return
    nvml: Any = pynvml
    for number in numbers:
        with suppress(nvml.NVMLError):
            nvml.nvmlInit()
            uuid = f"GPU-{torch.cuda.get_device_properties(number).uuid}"
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            read = partial(nvml.nvmlDeviceGetTotalEnergyConsumption, handle)
            yield counter(read, joules=1e-3)


def processor_counters() -> Iterator[Callable[[], float]]:
    """Of the packages and the memory that Linux shows (powercap), in microjoules."""
    for zone in sorted(POWERCAP.glob("intel-rapl:*")):
        with suppress(OSError, ValueError):
            name = (zone / "name").read_text().strip()
            if name.startswith("package") or name == "dram":
                most = float((zone / "max_energy_range_uj").read_text())
                read = partial(_number, zone / "energy_uj")
                yield counter(read, joules=1e-6, wraps_at=most)


def _number(path: Path) -> float:
    return float(path.read_text())
