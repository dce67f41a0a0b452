"""A report as one HTML page that loads nothing from anywhere, and its parts."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from jinja2 import Environment, StrictUndefined

# Controls, halves of surrogate pairs, line and paragraph separators, code points of no character.
NOT_ALLOWED = ("Cc", "Cs", "Zl", "Zp", "Cn")


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


def html(page: Mapping[str, Any]) -> str:
    """The page of the values that `page.html` reads. No text in them can add code or style.

    The page's policy forbids the browser to load anything, and to use any script and style but
    those of this package, which it recognizes by their hashes.
    """
    style, script = _file("page.css"), _file("page.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    environment = Environment(
        autoescape=True,
        finalize=_legible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # As an image: its ids are separate from those of others, and no script runs in it.
    environment.filters["embedded"] = lambda svg: (
        f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    )
    return environment.from_string(_file("page.html")).render(
        page=page, policy=policy, style=style, script=script
    )


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _legible(value: Any) -> Any:
    """Characters that a page must not contain, as escapes; joiners and marks of direction stay."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # escaped already
        return value
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) in NOT_ALLOWED
        else letter
        for letter in value
    )
