"""Devices of this machine: CPU cores and GPUs. torch is imported when a function needs it."""

from __future__ import annotations

import os
import shutil
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nmtdeep.errors import UserError

if TYPE_CHECKING:
    import torch


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def has_triton() -> bool:
    """Whether Triton is installed, with what it builds its launchers with: a C compiler, Python.h.

    Not under `train --no-compile`.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    wanted = os.environ.get("TORCH_COMPILE_DISABLE") != "1"
    return wanted and find_spec("triton") is not None and bool(compiler) and header.exists()


def keep_compiled() -> Path:
    """Let torch keep compiled code between runs and restarts of the machine; where it does.

    That is TORCHINDUCTOR_CACHE_DIR; a folder of the user where it is not set.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", f"{home}/nmtdeep/compiled"))


@contextmanager
def kept_settings() -> Iterator[None]:
    """Put back what the block sets in torch for the whole process; decorates functions too.

    That is the threads, the precision of products, the choice of attention on a GPU, the current
    GPU, random numbers and filters of warnings.
    """
    import torch

    cuda = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    device = torch.cuda.current_device() if cuda else None
    threads, precision = torch.get_num_threads(), ""
    with suppress(RuntimeError):  # torch's newer interface was used, which this one cannot read
        precision = torch.get_float32_matmul_precision()
    cudnn = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng([device] if cuda else []), warnings.catch_warnings():
        try:
            yield
        finally:
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)
            if precision:
                torch.set_float32_matmul_precision(precision)
            torch.backends.cuda.enable_cudnn_sdp(cudnn)
            if device is not None:
                torch.cuda.set_device(device)


def resolve_device(name: str, *, rank: int = 0, processes: int = 1) -> torch.device:
    """The device of one process; `auto` is the GPU where there is one.

    Of several processes on GPUs each has its own, in order. A GPU comes with its index, as
    `torch.cuda.set_device` demands, and is the current one of the calling thread from then on, so
    that nothing opens another.

    Args:
        rank: among the `processes` of this machine.

    Raises:
        UserError: if there is no such device, or not one for each process.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    device = name
    if device == "auto":
        device = "cuda" if count else "cpu"
    if processes > 1 and device == "cuda" and count:
        if processes > count:
            what = f"{processes} processes, but {count} GPUs"
            raise UserError(what, hint="start one process for each GPU at most")
        device = f"cuda:{rank}"
    try:
        place = torch.device(device)
    except RuntimeError:
        place = torch.device("meta")
    if place.type not in ("cpu", "cuda"):
        raise UserError(f"unknown device {device}", hint="use auto, cpu, cuda or cuda:N")
    if place.type == "cpu":
        return place
    if not count:
        raise UserError("no CUDA device here", hint="use --device cpu")
    if (place.index or 0) >= count:
        raise UserError(f"no {device}: there are {count}, the first is cuda:0")
    if processes > 1 and name not in ("auto", "cuda"):
        hint = "pass cuda for several processes"
        raise UserError(f"{name} is one GPU", where="--device", hint=hint)
    index = torch.cuda.current_device() if place.index is None else place.index
    torch.cuda.set_device(index)
    # From Hopper on torch prefers cuDNN's attention (check_prefer_cudnn_attention in its
    # sdp_utils.cpp), which builds a plan for every new shape and keeps it (cudnn/MHA.cpp).
    # Batches of sentences have thousands of shapes; torch's own kernels need no plan.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device("cuda", index)


def native_bf16(device: torch.device) -> bool:
    """Whether the device has instructions for matrix products in bf16."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    try:
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    except AttributeError:  # another processor family or another torch
        return False
