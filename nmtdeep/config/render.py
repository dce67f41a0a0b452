"""A recipe as YAML text: plain, with the origin of each value, or only what differs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import Section
from nmtdeep.config.source import KeyPath
from nmtdeep.errors import printable

# Words that need no quotes, unless they are one of the names below.
_WORDS = re.compile(r"[A-Za-z]([\w ./+()%'-]*[\w)])?", re.ASCII)
_NAMES = ("true", "false", "null")
_WIDEST = 48


def to_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML, a line for each value that is not a mapping."""
    return "".join(f"{text}\n" for text, _ in _lines(values, short=False))


def dump(recipe: Recipe) -> str:
    """The whole recipe as YAML that loads back equal; a variant without fields is its name.

    Fields with `exclude_if` are left out at their neutral values, so that files keep their format.
    """
    return "".join(f"{text}\n" for text, _ in _lines(recipe.model_dump(mode="json"), short=True))


def display(recipe: Recipe, origin: Callable[[KeyPath], str] | None = None) -> str:
    """As `dump`, with every value, and `origin(key path)` as an aligned comment behind each."""
    lines = list(_lines(every_value(recipe), short=True))
    column = max(len(text) for text, path in lines if path and len(text) <= _WIDEST)
    return "".join(
        f"{text:<{column}}  # {origin(path)}\n" if origin and path else f"{text}\n"
        for text, path in lines
    )


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Leaves in which two dumped recipes differ, as `key.path: old -> new`, in YAML."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [f"{printable(prefix)}: {_inline(old)} -> {_inline(new)}"]
    return [
        change
        for key in dict.fromkeys([*old, *new])
        for change in differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
    ]


def every_value(value: Any) -> Any:
    """The fields of a section and of those inside it as plain values; no `exclude_if` counts."""
    if isinstance(value, Section):
        return {name: every_value(field) for name, field in value}
    return [every_value(each) for each in value] if isinstance(value, tuple) else value


def _lines(
    values: Mapping[str, Any], above: KeyPath = (), *, short: bool
) -> Iterator[tuple[str, KeyPath | None]]:
    """Lines of YAML, each with the path of its value; the path is None where a section begins."""
    for key, value in values.items():
        path, start = (*above, key), f"{'  ' * len(above)}{_inline(key)}:"
        if isinstance(value, dict) and (len(value) > 1 or (value and not short)):
            yield start, None
            yield from _lines(value, path, short=short)
        else:
            yield f"{start} {_inline(value)}", (*path, *value) if isinstance(value, dict) else path


def _inline(value: Any) -> str:
    """A value on one line, as JSON with fewer quotes."""
    match value:
        case {"type": str(name)} if len(value) == 1:
            return name
        case dict():
            items = (f"{_inline(key)}: {_inline(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_inline, value))}]"
        case str() if not _WORDS.fullmatch(value) or value.lower() in _NAMES:
            quoted = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{printable(quoted)}"'
        case str():
            return value
    return json.dumps(value)
