"""The files of one scoring, which must have the same sentences line by line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from nmtdeep.errors import DataError, UserError
from nmtdeep.text.lines import read_lines


class NamedText(NamedTuple):
    """Lines and their name in messages and tables."""

    name: str
    lines: Sequence[str]


@dataclass(frozen=True)
class Texts:
    """The texts of one scoring.

    Attributes:
        systems: hypotheses that are compared with `hypotheses`.
    """

    hypotheses: NamedText
    references: list[NamedText]
    systems: list[NamedText]

    def __post_init__(self) -> None:
        check_counts(self.hypotheses, *self.references, *self.systems)


def read_text(path: Path) -> NamedText:
    """A file's lines, `.gz` allowed; `-` is standard input."""
    if str(path) == "-":
        return NamedText("stdin", list(read_lines(sys.stdin.buffer)))
    return NamedText(str(path), list(read_lines(path)))


def read_texts(hypotheses: Path, references: Sequence[Path], systems: Sequence[Path] = ()) -> Texts:
    """Read all files of a scoring.

    Raises:
        UserError: if a file cannot be read, or numbers of lines differ.
    """
    if [hypotheses, *references, *systems].count(Path("-")) > 1:
        raise UserError("standard input can be read only once", where="-", hint="pass files")
    return Texts(
        read_text(hypotheses),
        references=[read_text(path) for path in references],
        systems=[read_text(path) for path in systems],
    )


def check_counts(first: tuple[str, Sequence[str]], *others: tuple[str, Sequence[str]]) -> None:
    """Raise DataError unless all texts, each with its name, have as many lines, at least one."""
    name, lines = first
    if not lines:
        raise DataError("nothing to score: no lines", where=name, hint="pass at least one line")
    counts = [f"{label} has {len(text)}" for label, text in others if len(text) != len(lines)]
    if counts:
        raise DataError(
            f"different numbers of lines: {name} has {len(lines)}, {', '.join(counts)}",
            hint="line i of every file must be about the same sentence",
        )
