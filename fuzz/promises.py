"""What the fuzzed readers promise: a clear refusal, or what `hold` checks."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from nmtdeep.errors import ConfigError, UserError


class BrokenError(Exception):
    """A promise that the input broke."""


def hold(what: bool, promise: str) -> None:
    """Raise BrokenError, with the promise, if it does not hold."""
    if not what:
        raise BrokenError(promise)


def clear(error: UserError, kind: type[UserError]) -> None:
    """A refusal is of the promised kind, and lines that any terminal and log can show."""
    hold(isinstance(error, kind), f"refused by {type(error).__name__}, not {kind.__name__}")
    hold(bool(str(error)), "a refusal has a message")
    hold(
        all(line.isprintable() and len(line) < 6000 for line in str(error).split("\n")),
        "a refusal is short lines of characters that show",
    )
    hold(kind is ConfigError or len(error.problems) <= 3, "a refusal is a line, or three at most")


@cache
def folder() -> Path:
    """A folder of this process."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def file(name: str, content: bytes) -> Path:
    """A file of that content; the same one at each call."""
    path = folder() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path
