"""The screen that describes a directory: names and values, and the problems of its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.text import JointBpe, NoBpe
from nmtdeep.errors import Problem, UserError, printable
from nmtdeep.text.pipeline import TextPipeline

T = TypeVar("T")


@dataclass
class Screen:
    """Rows, in order, and a problem for each damaged file."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def add(self, name: str, value: str) -> None:
        """One more row; a row without a name continues the row above."""
        self.rows.append((name, printable(value)))

    def read(self, reader: Callable[[], T]) -> T | None:
        """What `reader` returns; None if it raises, which is a problem of a file."""
        try:
            return reader()
        except UserError as error:
            known = {problem.where for problem in self.problems}
            self.problems += [one for one in error.problems if one.where not in known]
            return None

    def add_text(self, recipe: Recipe | None, pipeline: TextPipeline | None) -> None:
        """The text pipeline and its vocabularies in a row each."""
        if recipe is None or pipeline is None:
            return
        text, sides = recipe.text, (pipeline.source, pipeline.target)
        parts = [f"{text.source} to {text.target}", f"{text.input} text"]
        parts += ["normalized"] * (text.normalize and text.input == "raw")
        parts += ["lower-cased"] * text.lowercase
        merges = [f"{len(side.bpe.merges):,}" for side in sides if side.bpe]
        if isinstance(text.bpe, NoBpe) or not merges:
            parts.append("no BPE of its own")
        else:
            counts = merges[0] if isinstance(text.bpe, JointBpe) else " and ".join(merges)
            parts.append(f"{text.bpe.type} BPE of {counts} merges")
            parts += [f"BPE-dropout {text.bpe.dropout:g}"] * bool(text.bpe.dropout)
        self.add("text", ", ".join(parts))
        types = " and ".join(f"{len(side.vocabulary):,} {side.language} types" for side in sides)
        if text.vocabulary.sharing == "shared":
            types = f"{len(sides[0].vocabulary):,} types, shared"
        self.add("vocabulary", f"{types}; text pipeline {pipeline.fingerprint()[:16]}")

    def finish(self) -> None:
        """Add the last rows: whether every file is as it was written."""
        for number, problem in enumerate(self.problems):
            self.add("" if number else "DAMAGED", str(problem))
        if not self.problems:
            self.add("integrity", "ok: every file is as it was written")


def size_of(directory: Path) -> int:
    """Bytes of all files below a directory, without links."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)
