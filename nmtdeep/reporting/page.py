"""A report as one HTML page that loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
import unicodedata
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from nmtdeep.reporting.parts import Page

# Controls, halves of surrogate pairs, line and paragraph separators, code points of no character.
UNFIT = ("Cc", "Cs", "Zl", "Zp", "Cn")


def html(page: Page) -> str:
    """The page. All text in it is escaped where it is written; no text can add code or style.

    The browser is told to take nothing from the network, and to run and apply only the script and
    the style that are this module's, by their hashes.
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
    environment.filters["embedded"] = _embedded
    return environment.from_string(_file("page.html")).render(
        page=page, policy=policy, style=style, script=script
    )


def _file(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """How a policy names what may run."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _embedded(svg: bytes) -> str:
    """As an image of its own: ids of two pictures do not meet, and no script in it would run."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _legible(value: Any) -> Any:
    """Characters that no page may have, as escapes; joiners and marks of direction stay."""
    if not isinstance(value, str) or hasattr(value, "__html__"):  # escaped already
        return value
    return "".join(
        one.encode("unicode_escape").decode() if unicodedata.category(one) in UNFIT else one
        for one in value
    )
