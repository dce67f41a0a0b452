"""What an inspection found: names and values, and what is damaged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.text import JointBpe, NoBpe
from nmtdeep.errors import printable
from nmtdeep.text.pipeline import TextPipeline


@dataclass
class Findings:
    """Rows for the screen, in order, and a line for each thing that is damaged."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)

    def add(self, name: str, value: str) -> None:
        """One more row; a row without a name goes on the one above."""
        self.rows.append((name, printable(value)))

    def finish(self) -> None:
        """The last rows: whether every file is as it was written."""
        for number, one in enumerate(self.damages):
            self.add("" if number else "DAMAGED", one)
        if not self.damages:
            self.add("integrity", "ok: every file is as it was written")


def size_of(paths: Iterable[Path]) -> int:
    """Bytes of files, and of all files below folders; links count nothing."""
    total = 0
    for path in paths:
        inside = path.rglob("*") if path.is_dir() else (path,)
        total += sum(one.stat().st_size for one in inside if one.is_file() and not one.is_symlink())
    return total


def text_row(recipe: Recipe, pipeline: TextPipeline) -> str:
    """The text pipeline in a line."""
    text = recipe.text
    parts = [f"{text.source} to {text.target}", f"{text.input} text"]
    parts += ["normalized"] * (text.normalize and text.input == "raw")
    parts += ["lower-cased"] * text.lowercase
    codes = [len(side.bpe.merges) for side in (pipeline.source, pipeline.target) if side.bpe]
    if isinstance(text.bpe, NoBpe) or not codes:
        parts.append("no BPE of its own")
    else:
        joint = isinstance(text.bpe, JointBpe)
        counts = f"{codes[0]:,}" if joint else " and ".join(f"{one:,}" for one in codes)
        parts.append(f"{text.bpe.type} BPE of {counts} merges")
        parts += [f"BPE-dropout {text.bpe.dropout:g}"] * bool(text.bpe.dropout)
    return ", ".join(parts)


def vocabulary_row(recipe: Recipe, pipeline: TextPipeline) -> str:
    """Sizes of the vocabularies, and the pipeline's fingerprint."""
    sides = (pipeline.source, pipeline.target)
    if recipe.text.vocabulary.sharing == "shared":
        sizes = f"{len(sides[0].vocabulary):,} types, shared"
    else:
        sizes = " and ".join(f"{len(one.vocabulary):,} {one.language} types" for one in sides)
    return f"{sizes}; text pipeline {pipeline.fingerprint()[:16]}"
