"""Checks before any work is done: the parallel files to preprocess, and where the result goes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nmtdeep import files
from nmtdeep.config.text import Text
from nmtdeep.data.index import INDEX_FILE, TRAIN, VALID
from nmtdeep.errors import DataError, UserError
from nmtdeep.preprocessing.stages import Pair
from nmtdeep.text.files import count_lines, find_side, read_lines


@dataclass(frozen=True)
class ParallelFiles:
    """Two files with as many lines, one the translation of the other."""

    split: str
    source: Path
    target: Path
    lines: int

    def pairs(self) -> Iterator[Pair]:
        """The lines side by side."""
        return zip(read_lines(self.source), read_lines(self.target), strict=True)

    def head(self, number: int) -> list[Pair]:
        """The first few pairs."""
        return list(islice(self.pairs(), number))


def find_inputs(
    config: Text, *, train: Path, valid: Path, tests: Sequence[Path]
) -> list[ParallelFiles]:
    """Train, valid and the tests, in this order, each named as its split will be.

    Reads every file once. DataError for files that are missing, broken or do not go together;
    UserError for names that cannot stand side by side.
    """
    if config.source == config.target:
        raise UserError(
            f"source and target are both {config.source}: set text.source and text.target (-s, -t)"
        )
    prefixes = [(TRAIN, train), (VALID, valid), *((prefix.name, prefix) for prefix in tests)]
    names = [name for name, _ in prefixes]
    for name in names:
        if names.count(name) > 1 or not name:
            raise UserError(
                f"two splits would be called {name!r}: rename the --test files; their last path "
                "component is the split's name"
            )
    return [_open(name, prefix, config) for name, prefix in prefixes]


def _open(split: str, prefix: Path, config: Text) -> ParallelFiles:
    source = find_side(prefix, config.source)
    target = find_side(prefix, config.target)
    lines = count_lines(source), count_lines(target)
    if lines[0] != lines[1]:
        raise DataError(
            f"{source} has {lines[0]:,} lines but {target} has {lines[1]:,}: line i of one must "
            "translate line i of the other; make them again from their common source"
        )
    return ParallelFiles(split, source, target, lines[0])


def check_free(out: Path, *, overwrite: bool) -> None:
    """Check that `out` can become a data directory and nothing of the user's is lost.

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
            raise UserError(
                "a finished data directory",
                where=out,
                hint="use it, choose another --out, or give --overwrite",
            )
        known = {files.SUMS, *files.read_sums(out, hint="delete the directory to replace it")}
    for path in out.rglob("*"):
        if path.relative_to(out).as_posix() not in known and (path.is_symlink() or path.is_file()):
            raise UserError(
                "not a file of nmtdeep preprocess, which replaces the whole directory",
                where=path,
                hint="choose another --out, or move the file",
            )
