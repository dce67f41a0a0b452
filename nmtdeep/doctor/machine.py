"""This machine: versions, devices, speed of matrix products, free disk space."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version

import torch
from torch.utils.benchmark import Timer

from nmtdeep import __version__, memory
from nmtdeep.config.recipe import Recipe
from nmtdeep.devices import cores, native_bf16
from nmtdeep.model.build import build
from nmtdeep.training.optimizer import linear_maps
from nmtdeep.units import counted, size

# Packages that the report of a fault should name.
PACKAGES = ("torch", "numpy", "safetensors", "sacremoses", "subword-nmt", "sacrebleu")
# Seconds of each measurement.
DURATION = 0.4


def machine_rows() -> Iterator[tuple[str, str]]:
    """Versions, processor, memory, and a row for each device."""
    versions = [f"nmtdeep {__version__}", *(f"{name} {version(name)}" for name in PACKAGES)]
    machine, python = platform.machine(), platform.python_version()
    yield "system", f"{platform.system()} {machine}, Python {python}"
    yield "versions", ", ".join(versions)
    free = memory.available()
    cpu = f"{counted(cores(), 'core')}, {counted(torch.get_num_threads(), 'thread')}"
    yield "cpu", cpu if free is None else f"{cpu}, {size(free)} memory free"
    gpus = [torch.device("cuda", number) for number in range(torch.cuda.device_count())]
    for device in [torch.device("cpu"), *gpus]:
        name = str(device)
        if device.type == "cuda":
            properties = torch.cuda.get_device_properties(device)
            yield name, f"{properties.name}, {size(properties.total_memory)}"
        native = "native" if native_bf16(device) else "not native: training stays in fp32"
        rates = ", ".join(
            f"{label} {matrix_rate(device, dtype) / 1e9:,.0f} GFLOP/s"
            for label, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16))
        )
        yield f"{name} products", f"{rates}; bf16 is {native}"


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second in products of square matrices, measured."""
    width = 4096 if device.type == "cuda" else 1024
    matrix = torch.randn(width, width, device=device, dtype=dtype)
    timer = Timer(
        "matrix @ matrix", globals={"matrix": matrix}, num_threads=torch.get_num_threads()
    )
    return 2.0 * width**3 / float(timer.blocked_autorange(min_run_time=DURATION).median)


def planned_bytes(recipe: Recipe, *, source_types: int, target_types: int) -> int:
    """Bytes of a training's checkpoints: all that are kept, and the one being written."""
    with torch.device("meta"):
        model = build(recipe.model, source_types=source_types, target_types=target_types)
    keep, weights = recipe.training.checkpoints, sum(each.nbytes for each in model.parameters())
    # Muon has one moment for each number of a matrix, Adam two.
    matrices = linear_maps((model.encoder, model.decoder))
    muon = recipe.training.optimizer.type == "muon"
    each = 3 * weights - sum(matrix.nbytes for matrix in matrices) * muon
    return (keep.keep_last + keep.keep_best + 1) * each + weights * bool(keep.average_last)
