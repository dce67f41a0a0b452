"""Files from archives: only the wanted members, written to paths that do not depend on them.

So a member name that leads out of a folder has no effect; links and devices are refused.
"""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO

from nmtdeep.errors import DataError

# Text compresses to a tenth of its size at best.
MAX_EXPANSION = 100
_CHUNK = 1 << 20
_DAMAGE = (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile)
_NOT_PUBLISHED = "this is not the publisher's archive: list its members with tar -t"


def unpack(archive: Path, wanted: Mapping[str | None, Path], *, extra_bytes: int = 1 << 26) -> None:
    """Write members of a tar archive, or all of a gzip file (None), as plain text.

    Args:
        archive: `.tar`, `.tgz` or `.gz`.
        wanted: where each member is written. A name may be a pattern, whose files are appended to
            one another in the archive's order. Members that end in `.gz` are unpacked.
        extra_bytes: of unpacked text that are allowed beyond a hundred times the archive's size.

    Raises:
        DataError: if a member is missing, empty, duplicated or not a regular file, or if the
            archive is damaged or unpacks to more than a hundred times its size.
    """
    budget = MAX_EXPANSION * archive.stat().st_size + extra_bytes
    for target in wanted.values():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
    try:
        for name, stream in _members(archive, wanted):
            if name and "*" not in name and wanted[name].exists():
                raise DataError(f"{name} occurs twice", where=archive, hint=_NOT_PUBLISHED)
            with wanted[name].open("ab") as out:
                while data := stream.read(_CHUNK):
                    budget -= len(data)
                    if budget < 0:
                        what = f"unpacks to more than {MAX_EXPANSION} times its size"
                        hint = "this is not a text corpus: delete it"
                        raise DataError(what, where=archive, hint=hint)
                    out.write(data)
    except _DAMAGE as error:
        hint = "delete it and run the same command again"
        raise DataError(f"the archive is damaged ({error})", where=archive, hint=hint) from None
    for name, target in wanted.items():
        if not target.exists() or not target.stat().st_size:
            what = f"{name or 'its text'} is missing or empty"
            raise DataError(what, where=archive, hint=_NOT_PUBLISHED)


def _members(
    archive: Path, wanted: Mapping[str | None, Path]
) -> Iterator[tuple[str | None, IO[bytes] | gzip.GzipFile]]:
    """The key in `wanted` and the content of each member that one of the keys matches."""
    if None in wanted:
        with gzip.open(archive, "rb") as stream:
            yield None, stream
        return
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            key = next((key for key in wanted if key and fnmatchcase(name, key)), None)
            if key is None:
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise DataError(f"{name} is not a regular file", where=archive, hint=_NOT_PUBLISHED)
            yield key, gzip.GzipFile(fileobj=content) if name.endswith(".gz") else content
