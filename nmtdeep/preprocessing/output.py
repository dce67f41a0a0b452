"""The data directory as it comes into being: nothing looks complete before it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nmtdeep import files
from nmtdeep.data.index import COPY, INDEX_FILE
from nmtdeep.errors import DataError, UserError

PARTIAL = ".partial"
# The old data.json while its files are deleted.
OLD = ".old.json"


@contextmanager
def data_directory(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """A place to write into, OUT/.partial, whose files move to OUT if all went well.

    data.json, written by `write_index`, moves last. If anything fails, OUT is as it was. A run that
    was killed leaves .partial, and if it was moving files already, no data.json; the next one
    removes both their files. UserError if OUT holds a finished data directory (and not
    `overwrite`), other files, or cannot be written to.
    """
    check_free(out, overwrite=overwrite)
    partial = out / PARTIAL
    is_new = not out.exists()
    try:
        if not (out / INDEX_FILE).exists():
            _remove_listed(out, out / OLD)
            _remove_listed(out, partial / INDEX_FILE)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot write to {out} ({error.strerror}): choose another --out") from None
    try:
        yield partial
    except BaseException:
        shutil.rmtree(out if is_new else partial, ignore_errors=True)
        raise
    _remove_old(out)
    _move(partial, out)


def check_free(out: Path, *, overwrite: bool) -> None:
    """UserError unless OUT can become a data directory."""
    files.check_place(out, "--out")
    if out.exists():
        folders = [entry for entry in out.iterdir() if entry.is_dir()]
        files.check_entries(out, folders, hint="choose another --out, or delete it")
    if (out / INDEX_FILE).exists():
        if not overwrite:
            raise UserError(
                f"{out} is a finished data directory: use it, choose another --out, or give "
                "--overwrite"
            )
    elif not (out / PARTIAL).exists() and any(not path.is_dir() for path in out.rglob("*")):
        raise UserError(
            f"{out} holds files that nmtdeep did not make: choose another --out, or empty it"
        )


def _remove_old(out: Path) -> None:
    if (out / INDEX_FILE).exists():
        (out / INDEX_FILE).replace(out / OLD)
        _remove_listed(out, out / OLD)


def _remove_listed(out: Path, index: Path) -> None:
    """Delete the files of OUT that an index lists, then the index; none may be there."""
    if not index.exists():
        return
    try:
        names = files.read_json(index, hint=COPY).get("files")
    except DataError:
        names = []
    for name in names if isinstance(names, dict) else ():
        # What a data.json from elsewhere names may be anything.
        if files.is_inside(name) and (out / name).is_file():
            (out / name).unlink()
    index.unlink()


def _move(partial: Path, out: Path) -> None:
    for path in sorted(partial.rglob("*")):
        if path.is_file() and path != partial / INDEX_FILE:
            target = out / path.relative_to(partial)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    (partial / INDEX_FILE).replace(out / INDEX_FILE)
    shutil.rmtree(partial)


def write_index(partial: Path, index: dict[str, Any]) -> None:
    """Write data.json: the index, size and SHA-256 of every file beside it, and its own SHA-256."""
    listed = {
        path.relative_to(partial).as_posix(): {
            "bytes": path.stat().st_size,
            "sha256": files.digest(path),
        }
        for path in sorted(partial.rglob("*"))
        if path.is_file()
    }
    content = json.dumps(files.sealed({**index, "files": listed}), indent=2, ensure_ascii=False)
    (partial / INDEX_FILE).write_text(content + "\n", encoding="utf-8")
