"""What a report is made of, apart from how it is written down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Cell:
    """One cell of a table; `value` is what a number sorts by, None for text.

    Attributes:
        is_best: whether it is marked as the best of its row.
    """

    text: str
    value: float | None = None
    is_best: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under headings; the first cell of a row names it.

    Attributes:
        notes: lines below, such as signatures.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        svg: the file.
        signature: what its figures depend on.
        folded: whether a reader has to ask for it.
    """

    title: str
    svg: bytes
    signature: str
    folded: bool = False

    @property
    def is_wide(self) -> bool:
        """Whether it is wide enough to fill a page: 6 inches."""
        found = re.search(rb'<svg[^>]* width="([\d.]+)pt"', self.svg)
        return found is not None and float(found[1]) >= 6 * 72


@dataclass(frozen=True)
class Piece:
    """A part of a translation: as the reference has it, not so, or a place where words lack.

    Attributes:
        text: of the translation; of a gap, the reference's words that lack there.
    """

    text: str
    kind: Literal["same", "other", "gap"]


@dataclass(frozen=True)
class Sample:
    """A sentence, and what each run makes of it."""

    line: int
    source: str
    reference: str
    translations: Sequence[tuple[str, Sequence[Piece]]]


@dataclass(frozen=True)
class Settings:
    """A run's recipe.

    Attributes:
        description: its own words.
        differences: `key: old -> new` under a heading each, from what it is held against.
        lines: all of it, as YAML.
    """

    run: str
    description: str
    differences: Sequence[tuple[str, Sequence[str]]]
    lines: Sequence[str]


@dataclass
class Page:
    """Everything, in the order in which it stands.

    Attributes:
        made: when, and by what.
        scores: sets and metrics by runs.
        every_score: a row per score, with its checkpoint and its signature.
        split: the held-out set that was translated; None: none was.
        left_out: what is not there, and why.
    """

    runs: Sequence[str]
    made: str
    overview: Table
    scores: Table
    every_score: Table
    cost: Table
    settings: Sequence[Settings]
    figures: list[Figure] = field(default_factory=list)
    comparison: Table | None = None
    split: str | None = None
    samples: Sequence[Sample] = ()
    translated: Sequence[str] = ()
    left_out: list[str] = field(default_factory=list)
