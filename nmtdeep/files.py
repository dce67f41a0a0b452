"""Files that are what they were written as: checksums, and nothing that leads away or hangs.

A directory's `SHA256SUMS` has one line per file, as `sha256sum` writes them, and in a last line its
own checksum. A JSON object carries its checksum in itself, under the key `sha256`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmtdeep.errors import DataError, UserError

SUMS = "SHA256SUMS"
SEAL = "sha256"
# Bytes of a file of records or of settings; those that we write have a thousandth of this.
LARGEST_TEXT = 1 << 28


def check_place(path: Path, option: str) -> None:
    """Refuse a directory to be made where a file is, or below a file.

    Raises:
        UserError: naming the file and the option that the place was given by.
    """
    for place in (path, *path.parents):
        if place.is_dir():
            return
        if place.exists():
            raise UserError(f"{place} is a file, not a directory: choose another {option}")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_sums(directory: Path) -> None:
    """Write `SHA256SUMS` of all files of `directory`, those in folders too."""
    files = {
        path.relative_to(directory).as_posix(): path
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    lines = (f"{digest(path)}  {name}\n" for name, path in files.items() if name != SUMS)
    body = "".join(lines).encode()
    (directory / SUMS).write_bytes(body + _own(body))


def verify(directory: Path, *names: str, hint: str) -> None:
    """Check files of `directory` against its `SHA256SUMS`; without one there is nothing to check.

    Args:
        names: of files; one that ends in a slash means all that are listed below it.
        hint: ends the message.

    Raises:
        DataError: naming the first file that is not as it was written.
    """
    path = directory / SUMS
    if not path.exists():
        return
    sums = _read_sums(path, hint)
    below = tuple(name for name in names if name.endswith("/"))
    wanted = [name for name in names if name not in below]
    for name in [*wanted, *(name for name in sums if below and name.startswith(below))]:
        file = directory / name
        if name not in sums:
            raise DataError(f"{file}: not listed in {path}: {hint}")
        if not file.is_file():
            raise DataError(f"{file}: missing: {hint}")
        if digest(file) != sums[name]:
            raise DataError(
                f"{file}: changed or cut short since it was written (its SHA-256 is not that of "
                f"{SUMS}): {hint}"
            )


def damages(directory: Path, *, hint: str) -> list[str] | None:
    """A line for each file of `directory` that is not as it was written; None: no checksums."""
    path = directory / SUMS
    if not path.exists():
        return None
    found = []
    try:
        check_entries(directory, [directory], hint=hint)
        names = list(_read_sums(path, hint))
    except DataError as error:
        return [str(error)]
    for name in names:
        try:
            verify(directory, name, hint=hint)
        except DataError as error:
            found.append(str(error))
    return found


def is_inside(name: str) -> bool:
    """Whether `name` is a path below the directory that it is relative to."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _own(body: bytes) -> bytes:
    """The last line: a comment to `sha256sum --check`."""
    return f"# {hashlib.sha256(body).hexdigest()}  {SUMS}\n".encode()


def _read_sums(path: Path, hint: str) -> dict[str, str]:
    content = read_limited(path, hint=hint)
    body = content[: content.rfind(b"\n", 0, -1) + 1]
    if content != body + _own(body):
        raise DataError(f"{path}: changed or cut short since it was written: {hint}")
    lines = body.decode("utf-8", errors="replace").splitlines()
    sums = {name: found for found, _, name in (line.partition("  ") for line in lines)}
    if not all(map(is_inside, sums)):
        raise DataError(f"{path}: names a file outside {path.parent}: {hint}")
    return sums


def read_limited(path: Path, *, hint: str) -> bytes:
    """The bytes of a file that should be small.

    Raises:
        DataError: if it is not, is no file, or cannot be read.
    """
    try:
        if not path.is_file():
            raise DataError(f"{path}: missing, or not a file: {hint}")
        check_size(path, hint=hint)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): {hint}") from error
    return content


def check_size(path: Path, *, hint: str) -> None:
    """Raises DataError if a file that should be small is not."""
    if path.stat().st_size > LARGEST_TEXT:
        raise DataError(f"{path}: larger than {LARGEST_TEXT >> 20} MiB: {hint}")


def read_json(path: Path, *, hint: str) -> dict[str, Any]:
    """A JSON object that agrees with its own checksum, where it has one.

    Raises:
        DataError: if it cannot be read, is something else or was changed.
    """
    content = read_limited(path, hint=hint)
    try:
        found = json.loads(content.decode("utf-8"))
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        changed = SEAL in found and found[SEAL] != sealed(found)[SEAL]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: cannot be read ({error}): {hint}") from None
    if changed:
        raise DataError(f"{path}: changed since it was written: {hint}")
    return found


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the checksum of all others under `sha256`."""
    plain = {name: value for name, value in values.items() if name != SEAL}
    content = json.dumps(plain, sort_keys=True).encode()
    return {**plain, SEAL: hashlib.sha256(content).hexdigest()}


def check_entries(root: Path, entries: Iterable[Path], *, hint: str) -> None:
    """Check that `entries` of `root`, and all below them, are files and folders inside it.

    A link may lead elsewhere inside `root`. What is opened for reading or writing then neither
    waits for another process, as a pipe does, nor lies elsewhere on the machine.

    Raises:
        DataError: naming what is not.
    """
    home = os.path.realpath(root)
    for entry in entries:
        for path in (entry, *entry.rglob("*")):
            target = Path(os.path.realpath(path))
            if path.is_symlink() and not target.is_relative_to(home):
                raise DataError(f"{path}: a link that leads out of {root}: {hint}")
            try:
                mode = target.stat().st_mode
            except OSError:
                continue  # a link to nothing, or just gone
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise DataError(f"{path}: neither a file nor a folder: {hint}")


@contextmanager
def replace_directory(directory: Path) -> Iterator[Path]:
    """Yield an empty directory that takes the place of `directory` if the block succeeds.

    A failure leaves what was there before, whole.

    Raises:
        UserError: if the disk is full or may not be written.
    """
    partial = directory.with_name(f".{directory.name}.partial")
    old = directory.with_name(f".{directory.name}.old")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        _sync(partial)
        shutil.rmtree(old, ignore_errors=True)
        if directory.exists():
            directory.rename(old)
        partial.rename(directory)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        if old.exists() and not directory.exists():
            old.rename(directory)
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"cannot write {directory}: {reason}; what was saved before is whole: make room or "
            "mend the permissions, then run the same command again"
        ) from error


def _sync(directory: Path) -> None:
    for path in [*directory.rglob("*"), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a path beside, with the same ending, that takes the place of `path` in the end.

    What is no plain file, such as /dev/stdout, is written to as it is. If the block fails, a file
    that was there stays as it was.

    Raises:
        UserError: if it cannot be written or the disk is full.
    """
    plain = path.is_file() or not path.exists()
    beside = path.with_name(f".{path.stem}.partial{path.suffix}") if plain else path
    try:
        yield beside
        if plain:
            beside.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}: make room or choose another place"
        ) from error
    finally:
        if plain:
            beside.unlink(missing_ok=True)
