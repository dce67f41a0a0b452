"""Files and directories of this program: checksums, atomic writing, checks of what is read.

`SHA256SUMS` of a directory has one line for each of its files, as `sha256sum` writes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nmtdeep.errors import DataError, Problem, UserError, cure_of

SUMS = "SHA256SUMS"
# Largest file of records or settings, in bytes. Those that we write are a thousand times smaller.
LARGEST_TEXT = 1 << 28


def check_place(path: Path, option: str) -> None:
    """Refuse a path for a new directory if it is a file or below a file.

    Raises:
        UserError: naming the file and the option of the path.
    """
    for parent in (path, *path.parents):
        if parent.is_dir():
            return
        if parent.exists():
            raise UserError(
                "is a file, not a directory", where=parent, hint=f"choose another {option}"
            )


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Checksum of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, algorithm).hexdigest()


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a directory without its links."""
    entries = [path] if path.is_file() else path.rglob("*")
    return sum(each.stat().st_size for each in entries if each.is_file() and not each.is_symlink())


def write_sums(directory: Path, *names: str) -> None:
    """Write `SHA256SUMS` of all files of `directory`, those in folders too.

    Args:
        names: write the lines of these files only, and keep the other lines.
    """
    sums = read_sums(directory, hint="delete it") if names and (directory / SUMS).exists() else {}
    for file in map(directory.joinpath, names) if names else directory.rglob("*"):
        if file.is_file() and file != directory / SUMS:
            sums[file.relative_to(directory).as_posix()] = digest(file)
    with replace_file(directory / SUMS) as partial:
        lines = (f"{sums[name]}  {name}\n" for name in sorted(sums))
        partial.write_text("".join(lines), encoding="utf-8")


def read_sums(directory: Path, *, hint: str) -> dict[str, str]:
    """The checksums in `SHA256SUMS` by name of the file.

    Raises:
        DataError: if it is missing, cannot be read or names a file outside the directory.
    """
    path = directory / SUMS
    check_entries(directory, [path], hint=hint)
    lines = read_limited(path, hint=hint).decode("utf-8", errors="replace").split("\n")
    sums = {name: value for value, _, name in (line.partition("  ") for line in lines if line)}
    if not all(map(is_inside, sums)):
        raise DataError(f"names a file outside {directory}", where=path, hint=hint)
    return sums


def problems(directory: Path, *names: str, hint: str) -> Iterator[Problem]:
    """Problems of files of `directory`, by its `SHA256SUMS`; those that are missing come first.

    Args:
        names: files to check; a name that ends in a slash means all files listed below it; no
            names mean all files listed.
        hint: what the user can do about a file that is damaged.

    Raises:
        DataError: if something leads out of the directory, or its checksums cannot be read.
    """
    listed = directory / SUMS
    if not os.path.lexists(listed):
        yield Problem("missing, or not a file", str(listed), hint)
        return
    sums = read_sums(directory, hint=hint)
    folders = tuple(name for name in names if name.endswith("/"))
    checked = [name for name in names if name not in folders]
    checked += [name for name in sums if not names or name.startswith(folders)]
    check_entries(directory, [directory / name for name in checked], hint=hint)
    there = []
    for name in checked:
        file = directory / name
        if name not in sums:
            yield Problem(f"not listed in {listed}", str(file), hint)
        elif not os.path.isfile(file):  # noqa: PTH113  # Path.is_file raises for long names
            yield Problem(f"missing, but listed in {listed}", str(file), hint)
        else:
            there.append(name)
    with ThreadPoolExecutor() as pool:
        digests = pool.map(digest, map(directory.joinpath, there))
        for name, value in zip(there, digests, strict=True):
            if value != sums[name]:
                what = "damaged or changed since it was written (its SHA-256 is not that in "
                yield Problem(f"{what}{listed})", str(directory / name), hint)


def verify(directory: Path, *names: str, hint: str) -> None:
    """Compare files of `directory` with its `SHA256SUMS`; arguments as in `problems`.

    Raises:
        DataError: naming the first file that is damaged.
    """
    for problem in problems(directory, *names, hint=hint):
        raise DataError(problems=[problem])


def is_inside(name: str) -> bool:
    """Whether `name` is a path below the directory that it is relative to."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def check_entries(
    root: Path, entries: Iterable[Path], *, hint: str = "put the file itself there, or delete it"
) -> None:
    """Check that `entries` of `root`, and all below them, are files and folders inside it.

    A link may lead elsewhere inside `root`. So what is opened afterwards does not wait for another
    process, as a pipe does, and is not somewhere else on the machine.

    Raises:
        DataError: naming the link, pipe or device.
    """
    home = os.path.realpath(root)
    for entry in entries:
        for path in (entry, *entry.rglob("*")):
            target = Path(os.path.realpath(path))
            if path.is_symlink() and not target.is_relative_to(home):
                raise DataError(f"a link that leads out of {root}", where=path, hint=hint)
            try:
                mode = target.stat().st_mode
            except OSError:
                continue  # missing, or a link to a missing file
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise DataError("neither a file nor a folder", where=path, hint=hint)


def check_size(path: Path, *, hint: str) -> None:
    """Raises DataError if a file of text is too large to be read at once."""
    if path.stat().st_size > LARGEST_TEXT:
        raise DataError(f"larger than {LARGEST_TEXT >> 20} MiB", where=path, hint=hint)


def read_limited(path: Path, *, hint: str) -> bytes:
    """The bytes of a file that should be small.

    Raises:
        DataError: if it is large, is not a file or cannot be read.
    """
    try:
        if not path.is_file():
            raise DataError("missing, or not a file", where=path, hint=hint)
        check_size(path, hint=hint)
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", where=path, hint=hint) from error


def read_json(path: Path, *, hint: str) -> dict[str, Any]:
    """A JSON object.

    Raises:
        DataError: if it cannot be read or is something else.
    """
    try:
        values = json.loads(read_limited(path, hint=hint).decode("utf-8"))
        if isinstance(values, dict):
            return values
        what = "not a JSON object"
    except (ValueError, RecursionError) as error:
        what = f"cannot be read ({error})"
    raise DataError(what, where=path, hint=hint)


@contextmanager
def replace_directory(directory: Path) -> Iterator[Path]:
    """Yield an empty directory next to `directory`, which replaces it if the block succeeds.

    If the block fails, `directory` stays as it was.

    Raises:
        UserError: if the disk is full or must not be written to.
    """
    place = directory.resolve()
    partial, old = (place.with_name(f".{place.name}.{state}") for state in ("partial", "old"))
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        yield partial
        sync(partial)
        shutil.rmtree(old, ignore_errors=True)
        if place.exists():
            place.rename(old)
        partial.rename(place)
        shutil.rmtree(old, ignore_errors=True)
    except BaseException as error:
        if old.exists() and not place.exists():
            old.rename(place)
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(directory, error, kept=True) from error
        raise


def sync(directory: Path) -> None:
    """Flush a directory and all files in it to the disk."""
    for path in [*directory.rglob("*"), directory]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a path next to `path`, with the same ending, which replaces it if the block succeeds.

    The block may also make a link there. A device such as /dev/stdout is written to directly. If
    the block fails, `path` stays as it was.

    Raises:
        UserError: if the disk is full or must not be written to.
    """
    in_dev = path.parent in (Path("/dev"), Path("/dev/fd"))  # though a shell sends it to a file
    if path.exists() and (in_dev or not (path.is_file() or path.is_dir())):
        yield path
        return
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        partial.unlink(missing_ok=True)
        yield partial
        partial.replace(path)
    except OSError as error:
        raise cannot_write(path, error, kept=True) from error
    finally:
        with suppress(OSError):  # the place must not be written to
            partial.unlink(missing_ok=True)


def cannot_write(path: Path, error: OSError, *, kept: bool) -> UserError:
    """The error of a place that cannot be written to, with what to do about it.

    Args:
        kept: whether what was there before is unchanged, which is said then.
    """
    if not path.parent.is_dir():
        what = "cannot be written, for its folder does not exist"
        return UserError(what, where=path, hint="make the folder first")
    reason = error.strerror or error
    what = f"cannot be written: {reason}"
    if kept:
        what = f"cannot be written ({reason}); what was there before is unchanged"
    hint = f"{cure_of(error) or 'free disk space'}, then run the same command again"
    return UserError(what, where=path, hint=hint)
