"""Files out of archives: only those that are asked for, to places that the archive has no say in.

So a name that leads out of a folder leads nowhere, and links, devices and the like are refused.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from nmtdeep.errors import DataError

# Text packs to a tenth of its size at best.
MOST_TIMES_LARGER = 100
SLACK = 1 << 26
CHUNK = 1 << 20
_CURE = "delete it and run the same command again"
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)


def unpack(archive: Path, wanted: Mapping[str | None, Path]) -> None:
    """Write members of a tar archive, or all of a gzip file (None), as plain text.

    Args:
        archive: `.tar`, `.tgz` or `.gz`.
        wanted: where each member goes. A name may be a pattern, whose files go to one place in the
            archive's order. Members that end in `.gz` are unpacked.

    Raises:
        DataError: if a member is missing, empty, twice there or no plain file, if the archive is
            damaged, or unpacks to more than a hundred times its size.
    """
    budget = _Budget(archive)
    for target in wanted.values():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
    try:
        if None in wanted:
            with gzip.open(archive, "rb") as stream:
                budget.copy(stream, wanted[None])
        else:
            _from_tar(archive, {str(name): path for name, path in wanted.items()}, budget)
    except _DAMAGE as error:
        raise DataError(f"{archive}: not a sound archive ({error}): {_CURE}") from None
    for name, target in wanted.items():
        if not target.stat().st_size:
            raise DataError(f"{archive}: {name or 'the text'} is empty in it: {_CURE}")


def _from_tar(archive: Path, wanted: Mapping[str, Path], budget: _Budget) -> None:
    found: set[str] = set()
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            asked = next((one for one in wanted if fnmatchcase(name, one)), None)
            if asked is None:
                continue
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is None:
                raise DataError(
                    f"{archive}: {name} is no plain file in it: this is not the publisher's archive"
                )
            if asked in found and "*" not in asked:
                raise DataError(f"{archive}: {name} is in it twice: not the publisher's archive")
            found.add(asked)
            if name.endswith(".gz"):
                with gzip.open(stream, "rb") as packed:
                    budget.copy(packed, wanted[asked])
            else:
                budget.copy(stream, wanted[asked])
    if missing := set(wanted) - found:
        raise DataError(
            f"{archive}: {min(missing)} is not in it: this is not the archive that was expected; "
            "look into it with tar -t"
        )


class _Budget:
    """How much may still be unpacked of an archive."""

    def __init__(self, archive: Path) -> None:
        self.archive = archive
        self.left = MOST_TIMES_LARGER * archive.stat().st_size + SLACK

    def copy(self, stream: IO[bytes] | gzip.GzipFile, target: Path) -> None:
        with target.open("ab") as out:
            while data := stream.read(CHUNK):
                self.left -= len(data)
                if self.left < 0:
                    raise DataError(
                        f"{self.archive}: unpacks to more than {MOST_TIMES_LARGER} times its size: "
                        "this is no text corpus"
                    )
                out.write(data)
