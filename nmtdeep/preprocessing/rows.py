"""Rows of text in temporary files between two stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

REPEATED = "occurs before"


def to_bytes(rows: Iterable[Sequence[str]]) -> bytes:
    """Rows as lines of columns; words hold no white space of any kind, so tabs are safe."""
    return "".join("\t".join(row) + "\n" for row in rows).encode()


def read_rows(path: Path) -> Iterator[Any]:
    """The rows of a file, each a tuple of its columns."""
    with path.open("rb") as stream:
        for line in stream:
            yield tuple(line.decode().removesuffix("\n").split("\t"))


def labeled(rows: Path, repeated: npt.NDArray[np.bool_]) -> Iterator[tuple[str, str, str]]:
    """Words of a split's pairs, with the reason to drop a pair that is known by now, or nothing.

    Args:
        rows: file of pairs and reasons.
        repeated: whether each pair is dropped because it occurs before.
    """
    for (source, target, reason), is_repeated in zip(read_rows(rows), repeated, strict=True):
        yield source, target, reason or REPEATED * bool(is_repeated)
