"""A CUDA device in a build of torch for CPUs, as far as autograd asks for one.

Autograd asks two tables of torch for the device of a tensor: a device guard, and the hooks that say
whether CUDA is there. A build for CPUs has neither for CUDA, and Python can make a guard only for
torch's device `PrivateUse1`. So `claim_cuda` writes a guard that does nothing, and hooks that say
yes, into the tables. It was seen to work with torch 2.13.0+cpu and CPython 3.11 on Linux (x86-64).
This is the only file that depends on torch's memory layout.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch

VERSIONS = ("2.13",)
# Places of isBuilt and hasPrimaryContext in the hooks' table of virtual functions, and its size.
BUILT, CONTEXT, ENTRIES = 2, 4, 80
POINTER = ctypes.sizeof(ctypes.c_void_p)
_alive: list[object] = []  # torch keeps only addresses of these


def missing() -> str:
    """Why this torch cannot pretend to have a GPU; empty if it can."""
    if torch.cuda.is_available():
        return "there is a real GPU: see tests/gpu"
    if not torch.__version__.startswith(VERSIONS):
        return f"torch {torch.__version__} was not tried, only {', '.join(VERSIONS)}"
    try:
        claim_cuda()
    except (AttributeError, OSError, ValueError) as error:
        return f"this torch has other tables: {error}"
    return ""


def claim_cuda() -> None:
    """Write guard and hooks into torch's tables, once in a process."""
    if _alive:
        return
    libraries = Path(torch.__file__).parent / "lib"
    kinds = torch._C._autograd.DeviceType
    cuda, spare = int(kinds.CUDA), int(kinds.PrivateUse1)
    registry = "_ZN3c104impl26device_guard_impl_registryE"
    guards = (ctypes.c_void_p * 32).in_dll(ctypes.CDLL(str(libraries / "libc10.so")), registry)

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            return kinds.CUDA

    guard = Guard()
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    guards[cuda], guards[spare] = guards[spare], None

    get_hooks = ctypes.CDLL(str(libraries / "libtorch_cpu.so"))._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.POINTER(ctypes.c_void_p)
    hooks = get_hooks()
    # Two entries before the first function describe the class.
    old = ctypes.cast(hooks[0], ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * (2 + ENTRIES))(*(old[place] for place in range(-2, ENTRIES)))
    yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda hooks: True)
    no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda hooks, index: False)
    table[2 + BUILT] = ctypes.cast(yes, ctypes.c_void_p).value
    table[2 + CONTEXT] = ctypes.cast(no, ctypes.c_void_p).value
    hooks[0] = ctypes.addressof(table) + 2 * POINTER
    _alive.extend((guard, yes, no, table))
