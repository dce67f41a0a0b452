"""The files of one scoring: read, and checked to speak of the same sentences line by line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtdeep.errors import DataError, UserError
from nmtdeep.text.files import read_lines


@dataclass(frozen=True)
class Text:
    """Lines and the name they are printed under."""

    name: str
    lines: list[str]


@dataclass(frozen=True)
class Texts:
    """What is scored, against what, compared with what, and the source where it is known."""

    hypotheses: Text
    references: list[Text]
    systems: list[Text]
    source: Text | None

    def __post_init__(self) -> None:
        others = [*self.references, *self.systems, *([self.source] if self.source else [])]
        check_counts(self.hypotheses, others)


def read_text(path: Path) -> Text:
    """A file's lines, `.gz` allowed; `-` is standard input."""
    if str(path) == "-":
        return Text("stdin", list(read_lines(sys.stdin.buffer)))
    return Text(str(path), list(read_lines(path)))


def read_texts(
    hypotheses: Path, references: Sequence[Path], systems: Sequence[Path], source: Path | None
) -> Texts:
    """Read all files of a scoring and check that their numbers of lines agree."""
    paths = [hypotheses, *references, *systems, *([source] if source else [])]
    if [str(path) for path in paths].count("-") > 1:
        raise UserError("- (stdin) can be read only once; give a file for the others")
    return Texts(
        hypotheses=read_text(hypotheses),
        references=[read_text(path) for path in references],
        systems=[read_text(path) for path in systems],
        source=read_text(source) if source else None,
    )


def check_counts(first: Text, others: Sequence[Text]) -> None:
    """Line i of every file is about the same sentence: equally many lines, and at least one."""
    if not first.lines:
        raise DataError(f"{first.name}: the input is empty; there is nothing to score")
    odd = [
        f"{other.name} has {len(other.lines)}"
        for other in others
        if len(other.lines) != len(first.lines)
    ]
    if odd:
        raise DataError(
            f"different numbers of lines: {first.name} has {len(first.lines)}, {', '.join(odd)}; "
            "line i of every file must be about the same sentence"
        )
