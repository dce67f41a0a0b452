"""The start of the command: signals and streams, before the modules that take time to import."""

from __future__ import annotations

import fcntl
import gc
import os
import signal
import sys
from contextlib import contextmanager

TYPE_CHECKING = False  # as little is imported here as possible
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# Code that drops the exception of a signal, or reports it as something else: an import that may
# fail, and pydantic's validators, which are not in Python.
UNSAFE = ("importlib.", "_frozen_importlib", "pydantic")


def start() -> None:
    """The command `nmtdeep`, which Ctrl-C ends without a traceback from the first import on."""
    try:
        prepare()
        from nmtdeep.cli.main import run

        run()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def prepare() -> None:
    """Install the handlers of signals, and replace streams that are closed."""
    signal.signal(signal.SIGTERM, _leave)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not in the background
        signal.signal(signal.SIGINT, _leave)
    sys.unraisablehook = reraise_signal
    for number, name, kind in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            # Reading or writing it is an error, as of a closed one; only messages are dropped.
            place = os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_WRONLY)
            os.dup2(place, number)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, kind, encoding="utf-8", closefd=False))  # noqa: SIM115


@contextmanager
def imports() -> Iterator[None]:
    """For imports of torch and all that needs it: a tenth of their time is garbage collection."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def drop_messages() -> None:
    """Let a closed stdout take what is printed, which is no result."""
    if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _leave(number: int, frame: FrameType | None) -> None:
    """As Ctrl-C does in Python: partial files are removed, and worker processes end."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(UNSAFE):
            _send_again(number)
            return
        frame = frame.f_back
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _send_again(number: int) -> None:
    import threading

    threading.Timer(0.01, os.kill, (os.getpid(), number)).start()


def reraise_signal(unraisable: sys.UnraisableHookArgs) -> None:
    """Send a signal again if its exception was raised in a destructor, where Python drops it."""
    dropped = {SystemExit: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT}
    if unraisable.exc_type in dropped and not sys.is_finalizing():
        _send_again(dropped[unraisable.exc_type])
    else:
        sys.__unraisablehook__(unraisable)
