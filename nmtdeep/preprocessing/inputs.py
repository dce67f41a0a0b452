"""Checks before any work is done: the parallel files to preprocess, and the output directory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtdeep import files
from nmtdeep.config.text import Text
from nmtdeep.data.index import INDEX_FILE, TRAIN, VALID
from nmtdeep.errors import DataError, UserError
from nmtdeep.preprocessing.stages import Pair
from nmtdeep.text.files import find_side, read_lines


@dataclass(frozen=True)
class ParallelFiles:
    """Two files with equally many lines, one the translation of the other."""

    split: str
    source: Path
    target: Path
    lines: int

    def pairs(self) -> Iterator[Pair]:
        """The lines side by side."""
        return zip(read_lines(self.source), read_lines(self.target), strict=True)


def find_inputs(
    config: Text, *, train: Path, valid: Path, tests: Sequence[Path]
) -> list[ParallelFiles]:
    """Train, valid and the tests, in this order, each named like its split; reads every file once.

    Raises:
        DataError: for files that are missing, broken or of different length.
        UserError: for languages or names of splits that collide.
    """
    if config.source == config.target:
        raise UserError(
            f"source and target are both {config.source}",
            where="text.source",
            hint="set text.source and text.target (-s, -t)",
        )
    prefixes = [(TRAIN, train), (VALID, valid), *((prefix.name, prefix) for prefix in tests)]
    names = [name for name, _ in prefixes]
    for name in names:
        if names.count(name) > 1 or not name or "\n" in name:
            raise UserError(
                f"{name!r} cannot be the name of a split, or is the name of two",
                where="--test",
                hint="rename the files; the last component of the path is the name of the split",
            )
    inputs = []
    for name, prefix in prefixes:
        source, target = find_side(prefix, config.source), find_side(prefix, config.target)
        lines, others = (sum(1 for _ in read_lines(path)) for path in (source, target))
        if lines != others:
            raise DataError(
                f"{lines:,} lines, but {target} has {others:,}",
                where=source,
                hint="line i of one must translate line i of the other; create them again from "
                "their common source",
            )
        inputs.append(ParallelFiles(name, source, target, lines))
    return inputs


def check_free(out: Path, *, overwrite: bool) -> None:
    """Check that `out` can become a data directory without losing files of the user.

    Raises:
        UserError: if it holds a finished data directory (without `overwrite`) or other files, or
            cannot be replaced.
    """
    files.check_place(out, "--out")
    if not out.exists():
        return
    if os.path.ismount(out) or Path.cwd().is_relative_to(out.resolve()):
        raise UserError(
            "the current directory or a mount point, which cannot be replaced",
            where=out,
            hint="choose a directory inside it for --out",
        )
    known: Collection[str] = ()
    if (out / INDEX_FILE).exists():
        if not overwrite:
            hint = "use it, choose another --out, or pass --overwrite"
            raise UserError("a finished data directory", where=out, hint=hint)
        known = {files.SUMS, *files.read_sums(out, hint="delete the directory to replace it")}
    for path in out.rglob("*"):
        if path.relative_to(out).as_posix() not in known and (path.is_symlink() or path.is_file()):
            raise UserError(
                "not a file of nmtdeep preprocess, which replaces the whole directory",
                where=path,
                hint="choose another --out, or move the file",
            )
