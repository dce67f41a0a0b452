"""A CUDA device in a build of torch for CPUs, as far as autograd asks for one.

Autograd asks two tables of torch for the device of a tensor: a device guard, and the hooks that say
whether CUDA is there. A build for CPUs has neither for CUDA, and Python can make a guard only for
torch's device `PrivateUse1`. So `claimed_cuda` writes a guard that does nothing, and hooks that say
yes, into the tables, and takes them out again. It was seen to work with torch 2.13.0+cpu and
CPython 3.11 on Linux (x86-64). This is the only file that depends on torch's memory layout.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

VERSIONS = ("2.13",)
# Places of isBuilt and hasPrimaryContext in the hooks' table of virtual functions, and its size.
BUILT, CONTEXT, ENTRIES = 2, 4, 80
LIBRARIES = Path(torch.__file__).parent / "lib"
POINTER = ctypes.sizeof(ctypes.c_void_p)
_alive: list[object] = []  # torch keeps only addresses of these


def missing() -> str:
    """Why this torch cannot pretend to have a GPU; empty if it can.

    Call this before the process has run a backward pass, such as at import.
    """
    if torch.cuda.is_available():
        return "there is a real GPU: see tests/gpu"
    if not torch.__version__.startswith(VERSIONS):
        return f"torch {torch.__version__} was not tried, only {', '.join(VERSIONS)}"
    try:
        with claimed_cuda():  # the first backward pass of a process starts a thread per device
            torch.ones((), requires_grad=True).backward()
    except (AttributeError, OSError, ValueError) as error:
        return f"this torch has other tables: {error}"
    return ""


@contextmanager
def claimed_cuda() -> Iterator[None]:
    """Have a device guard and hooks for CUDA in torch's tables in this block."""
    kinds = torch._C._autograd.DeviceType
    cuda, spare = int(kinds.CUDA), int(kinds.PrivateUse1)
    guards, hooks = _guards(), _hooks()
    if not _alive:
        _alive.extend((_guard(), *_functions(hooks)))
    *_, table = _alive
    old = hooks[0]
    guards[cuda], guards[spare] = guards[spare], None
    hooks[0] = ctypes.addressof(table) + 2 * POINTER
    try:
        yield
    finally:
        guards[spare], guards[cuda] = guards[cuda], None
        hooks[0] = old


def _guards() -> Any:
    """Torch's table of device guards, by the number of the device's type."""
    registry = "_ZN3c104impl26device_guard_impl_registryE"
    return (ctypes.c_void_p * 32).in_dll(ctypes.CDLL(str(LIBRARIES / "libc10.so")), registry)


def _hooks() -> Any:
    """Torch's hooks for CUDA; the first entry points to their table of functions."""
    get_hooks = ctypes.CDLL(str(LIBRARIES / "libtorch_cpu.so"))._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.POINTER(ctypes.c_void_p)
    return get_hooks()


def _guard() -> object:
    """A guard for CUDA that does nothing, registered as that of the spare device."""

    class Guard(torch._C._acc.DeviceGuard):
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.CUDA

    guard = Guard()
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    return guard


def _functions(hooks: Any) -> tuple[object, ...]:
    """Two functions, and a copy of the hooks' table that has them."""
    # Two entries before the first function describe the class.
    old = ctypes.cast(hooks[0], ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * (2 + ENTRIES))(*(old[place] for place in range(-2, ENTRIES)))
    yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda hooks: True)
    no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda hooks, index: False)
    table[2 + BUILT] = ctypes.cast(yes, ctypes.c_void_p).value
    table[2 + CONTEXT] = ctypes.cast(no, ctypes.c_void_p).value
    return yes, no, table
