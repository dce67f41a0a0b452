"""Parallel text: two files with a line for each sentence, or one file with a line for each pair.

| name | a line |
|---|---|
| `PREFIX.en` and `PREFIX.de` | one side of a pair |
| `NAME.tsv` | source, a tab, target |
| `NAME.jsonl` | a JSON object with both sides, by language or as `source` and `target` |

Each may be packed: `.gz`, `.zst`. An object may have both sides inside `translation`, as data sets
of Hugging Face do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from nmtdeep.errors import DataError, UserError
from nmtdeep.text.lines import PACKED, Encoding, Unreadable, find_side, read_lines

FORMS = (".tsv", ".jsonl")


@dataclass(frozen=True)
class ParallelText:
    """Text and its translation.

    Attributes:
        paths: source and target file, or the file of both.
        training: as in `read_lines`.
    """

    paths: tuple[Path, ...]
    languages: tuple[str, str]
    training: Encoding | None = None

    @property
    def names(self) -> tuple[str, str]:
        """Of the files of source and target."""
        return str(self.paths[0]), str(self.paths[-1])

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def pairs(self) -> Iterator[tuple[str | None, str | None]]:
        """The pairs in order; a side is None where its file has ended before the other.

        Raises:
            DataError: naming the file, and its line if there is one, that cannot be read.
        """
        if len(self.paths) == 1:
            return self._rows(self.paths[0])
        source, target = (read_lines(path, training=self.training) for path in self.paths)
        return zip_longest(source, target)

    def _rows(self, path: Path) -> Iterator[tuple[str, str]]:
        split: Callable[[str], list[str]] = _columns
        hint = "write source, a tab and target"
        if form_of(path) == ".jsonl":
            split, hint = self._values, 'write {{"{}": "...", "{}": "..."}}, without line breaks'
        for number, line in enumerate(read_lines(path, training=self.training), 1):
            try:
                source, target = (line, line) if isinstance(line, Unreadable) else split(line)
            except ValueError as error:
                if isinstance(error, UnicodeError) and self.training == "drop":
                    yield Unreadable(), Unreadable()
                    continue
                where, what = f"{path}:{number}", str(error)
                raise DataError(what, where=where, hint=hint.format(*self.languages)) from None
            # As at the end of a line; what cannot be read stays as it is.
            yield source and source.rstrip("\r"), target and target.rstrip("\r")

    def _values(self, line: str) -> list[str]:
        """The sides of a JSON object."""
        try:
            values = json.loads(line)
            values = values.get("translation", values)
            sides = zip(self.languages, ("source", "target"), strict=True)
            texts = [values.get(language, values.get(side)) for language, side in sides]
        except (ValueError, AttributeError, RecursionError):
            raise ValueError("not a JSON object") from None
        for language, text in zip(self.languages, texts, strict=True):
            if not isinstance(text, str):
                raise ValueError(f"no text for {language}")
            if "\n" in text:
                raise ValueError(f"a line break in the text for {language}")
            text.encode()  # a UnicodeEncodeError, if there is half a character in it
        return texts


def _columns(line: str) -> list[str]:
    columns = line.split("\t")
    if len(columns) != 2:
        raise ValueError(f"{len(columns)} columns instead of 2")
    return columns


def find_text(
    prefix: Path, languages: tuple[str, str], training: Encoding | None = None
) -> ParallelText:
    """The files of a prefix, or the file of both sides; they are not opened.

    Args:
        training: as in `read_lines`.

    Raises:
        UserError: if a file is missing or a pipe, or there are two of its name.
    """
    paths = [prefix] if form_of(prefix) else [find_side(prefix, code) for code in languages]
    for path in paths:
        if path.exists() and not (path.is_file() or path.is_dir()):
            what = "a pipe or a device, which cannot be read twice"
            raise UserError(what, where=path, hint="write it to a file first")
    return ParallelText((*paths,), languages, training)


def form_of(path: Path) -> str:
    """`.tsv` or `.jsonl` for the name of a file of both sides, packed or not; else nothing."""
    form = _unpacked(path).suffix
    return form if form in FORMS else ""


def name_of(prefix: Path) -> str:
    """The name of a split: the last part of its prefix, or of the file without its endings."""
    return _unpacked(prefix).stem if form_of(prefix) else prefix.name


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix in PACKED else path
