"""The parts of a report, as its template reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple


class TableCell(NamedTuple):
    """One cell; numbers are sorted by `value`, which is None for text.

    Attributes:
        is_best: whether it is marked as the best of its row.
    """

    text: str
    value: float | None = None
    is_best: bool = False


class PageTable(NamedTuple):
    """Rows under headings; the first cell of a row names it.

    Attributes:
        notes: lines below, such as signatures.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[TableCell]]
    notes: Sequence[str] = ()


class Picture(NamedTuple):
    """A picture.

    Attributes:
        svg: the file.
        signature: the conditions of its numbers.
        folded: whether it is hidden until a reader opens it.
    """

    title: str
    svg: bytes
    signature: str
    folded: bool = False


class Piece(NamedTuple):
    """A piece of a translation: as in the reference, different, or a gap.

    Attributes:
        text: of the translation; of a gap, the words of the reference that are missing.
    """

    text: str
    kind: Literal["same", "other", "gap"]


class TranslatedLine(NamedTuple):
    """A sentence, and its translation by each run."""

    number: int
    source: str
    reference: str
    translations: Sequence[tuple[str, Sequence[Piece]]]
