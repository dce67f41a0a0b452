"""Names of other toolkits and of earlier versions, and what to write here instead.

The toolkits are fairseq, Hugging Face, Marian, JoeyNMT and Eole. The table `other_toolkits.tsv` has
three columns: places, names and the cure. A place is `key`, `command`, `metric`, or the command
whose option it is; a cure with a space is a sentence.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def _table() -> dict[tuple[str, str], str]:
    text = (files(__package__) / "other_toolkits.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {
        (p, n): cure for places, names, cure in rows for p in places.split() for n in names.split()
    }


def instead(place: str, name: str) -> str:
    """What to write for a name of another toolkit; empty if the table does not have it."""
    return _table().get((place, name.strip("-").replace("-", "_").lower()), "")
