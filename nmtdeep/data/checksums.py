"""Checksums of files that are too large to be read at the start: block by block, when first read.

`FILE.crc32` holds the CRC-32 of each block of FILE, little-endian uint32.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nmtdeep.errors import DataError

SUFFIX = ".crc32"
# Bytes. A larger block means fewer checksums, and more to read around what is wanted.
BLOCK = 1 << 16


def sums_file(path: Path) -> Path:
    """Where the checksums of a file's blocks are."""
    return path.with_name(path.name + SUFFIX)


class BlockWriter:
    """Writes a file, and when it is closed the checksums of its blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stream = path.open("wb")
        self._sums: list[int] = []
        self._length = 0

    def write(self, data: bytes) -> None:
        """Append `data`."""
        self._stream.write(data)
        view = memoryview(data)
        while view:
            inside = self._length % BLOCK
            part, view = view[: BLOCK - inside], view[BLOCK - inside :]
            if not inside:
                self._sums.append(0)
            self._sums[-1] = zlib.crc32(part, self._sums[-1])
            self._length += len(part)

    def close(self) -> None:
        """Both files are whole from here on."""
        self._stream.close()
        sums_file(self.path).write_bytes(np.array(self._sums, "<u4").tobytes())


class Blocks:
    """Compares each block of a mapped file with its checksum, once, before it is used.

    Args:
        path: the file, for messages; its checksums are beside it.
        content: its bytes.
        hint: ends the message.

    Raises:
        DataError: if there are not as many checksums as blocks.
    """

    def __init__(self, path: Path, content: NDArray[np.uint8], *, hint: str) -> None:
        self.path, self.content, self.hint = path, content, hint
        self._sums = np.fromfile(sums_file(path), "<u4")
        self._seen = np.zeros(-(-len(content) // BLOCK), np.bool_)
        if len(self._sums) != len(self._seen):
            raise DataError(f"{sums_file(path)} does not belong to {path.name}: {hint}")

    def check(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Before bytes `starts[i]` to `ends[i]`, the latter excluded and larger, are read.

        Raises:
            DataError: naming the file and the place in it that is not as it was written.
        """
        first, last = starts // BLOCK, (ends - 1) // BLOCK
        if self._seen[first].all() and self._seen[last].all() and (last - first <= 1).all():
            return
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            for number in np.flatnonzero(~self._seen[low : high + 1]) + low:
                self._compare(int(number))

    def _compare(self, number: int) -> None:
        begin = number * BLOCK
        block = self.content[begin : begin + BLOCK]
        if zlib.crc32(block.data) != self._sums[number]:
            raise DataError(
                f"{self.path}: bytes {begin:,} to {begin + len(block):,} were changed since they "
                f"were written: {self.hint}"
            )
        self._seen[number] = True
