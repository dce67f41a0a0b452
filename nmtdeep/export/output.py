"""The directory of an export: whole or not there, with a note of where it comes from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nmtdeep import __version__, files
from nmtdeep.checkpoint import Loaded
from nmtdeep.errors import UserError
from nmtdeep.files import check_place

# Also what tells an export from a directory that is not ours to replace.
NOTE = "export.json"


def check_free(out: Path, *, overwrite: bool) -> None:
    """UserError unless `out` is free, or an export that may be replaced."""
    check_place(out, "--out")
    if not out.exists():
        return
    if (out / NOTE).is_file():
        if not overwrite:
            raise UserError(
                f"{out} is an export already: choose another --out, or give --overwrite"
            )
    elif any(out.iterdir()):
        raise UserError(
            f"{out} holds files that nmtdeep export did not make: choose another --out, or empty it"
        )


@contextmanager
def export_directory(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """An empty place beside `out` that becomes `out` if the block succeeds.

    Raises:
        UserError: if `out` is not free or cannot be written.
    """
    check_free(out, overwrite=overwrite)
    with files.replace_directory(out.resolve()) as partial:
        try:
            yield partial
        except BaseException:  # Ctrl-C too
            shutil.rmtree(partial, ignore_errors=True)
            raise


def write_note(folder: Path, loaded: Loaded, kind: str) -> None:
    """`export.json`: what was exported, and from what."""
    note = {
        "format": kind,
        "program": f"nmtdeep {__version__}",
        "checkpoint": f"{loaded.path.parent.name}/{loaded.path.name}",
        "languages": [loaded.recipe.text.source, loaded.recipe.text.target],
        "decoding": loaded.recipe.decoding.model_dump(),
    }
    content = json.dumps(note, indent=1, ensure_ascii=False)
    (folder / NOTE).write_text(content + "\n", encoding="utf-8")


def size(folder: Path) -> int:
    """Bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
