"""Helpers for tests of untrusted directories."""

import json
import os
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmtdeep import checkpoint
from nmtdeep.errors import UserError
from nmtdeep.files import write_sums

SECRET = "root:x:0:0\n"


class Payload:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def refused(
    path: Path, kind: type[UserError] = UserError, load: Any = checkpoint.load_model
) -> str:
    """The message of the refusal, which must not take more than 1 GiB of memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(kind) as caught:
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20
    return str(caught.value)


def rewrite(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(encoding="utf-8"), count=1)
    assert count == 1
    file.write_text(text, encoding="utf-8")
    write_sums(file.parent)


def forge(data: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((data / "data.json").read_text(encoding="utf-8"))
    change(index)
    (data / "data.json").write_text(json.dumps(index), encoding="utf-8")
    write_sums(data, "data.json")
