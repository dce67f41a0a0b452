"""Values of a recipe before they are checked, the line of each, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nmtdeep.errors import ConfigError, Problem

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a line of a file, or an override (which has no line)."""

    place: str
    line: int | None = None

    @property
    def is_override(self) -> bool:
        """Overrides come from the command line and have no line number."""
        return self.line is None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass(frozen=True)
class RecipeProblem:
    """Something wrong with one key.

    Attributes:
        origin: the file and line, or the override.
        path: the key and those above it; empty for a whole file.
        what: what is wrong.
        hint: what to do about it; may be empty.
    """

    origin: Origin
    path: KeyPath
    what: str
    hint: str = ""


@dataclass
class Source:
    """The plain values of one or more files, where each key path was written, what is wrong."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    problems: list[RecipeProblem] = field(default_factory=list)


def config_error(problems: Iterable[RecipeProblem]) -> ConfigError:
    """All problems as one error, in the order of the lines; overrides come last."""

    def order(problem: RecipeProblem) -> tuple[bool, str, int]:
        return problem.origin.is_override, problem.origin.place, problem.origin.line or 0

    def printed(problem: RecipeProblem) -> Problem:
        where = f"{problem.origin}: {dotted(problem.path)}" if problem.path else problem.origin
        return Problem(problem.what, str(where), problem.hint)

    return ConfigError(problems=dict.fromkeys(map(printed, sorted(problems, key=order))))


def dotted(path: KeyPath) -> str:
    """`("model", "sublayers", 2)` as `model.sublayers[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
