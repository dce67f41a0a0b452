"""A recipe as YAML text: plain, or with the origin of each value behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.yaml_source import SCALARS, TAG, KeyPath

_WIDEST = 48


class _Dumper(yaml.SafeDumper):
    """Quotes whatever YAML 1.1 or our loader would not read back as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _name, _pattern in SCALARS:
    _Dumper.add_implicit_resolver(f"{TAG}{_name}", _pattern, None)


def dump(recipe: Recipe) -> str:
    """The whole recipe as YAML that loads back equal."""
    return "".join(f"{text}\n" for text, _ in _lines(_plain(recipe)))


def annotated(recipe: Recipe, origin: Callable[[KeyPath], str]) -> str:
    """As `dump`, with `origin(key path)` as an aligned comment behind each value."""
    lines = list(_lines(_plain(recipe)))
    column = max(len(text) for text, path in lines if path and len(text) <= _WIDEST)
    return "".join(
        f"{text:<{column}}  # {origin(path)}\n" if path else f"{text}\n" for text, path in lines
    )


def _plain(recipe: Recipe) -> dict[str, Any]:
    values: dict[str, Any] = recipe.model_dump(mode="json")
    return values


def _lines(values: dict[str, Any], above: KeyPath = ()) -> Iterator[tuple[str, KeyPath | None]]:
    """The lines of a block mapping, and for each value its key path."""
    indent = "  " * len(above)
    for key, value in values.items():
        path, name = (*above, key), f"{indent}{inline(key)}:"
        short = _shorten(value)
        if isinstance(short, dict) and short:
            yield name, None
            yield from _lines(short, path)
        else:
            leaf = (*path, "type") if isinstance(value, dict) and value else path
            yield f"{name} {inline(short)}", leaf


def _shorten(value: Any) -> Any:
    """A variant without fields is its name; lists likewise, item by item."""
    if isinstance(value, list):
        return [_shorten(item) for item in value]
    bare = isinstance(value, dict) and list(value) == ["type"] and isinstance(value["type"], str)
    return value["type"] if bare else value


def inline(value: Any) -> str:
    """One line of YAML."""
    quoted = isinstance(value, str) and not value.isprintable()
    text: str = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        default_style='"' if quoted else None,
        allow_unicode=True,
        sort_keys=False,
        width=float("inf"),
    )
    return text.removesuffix("\n").removesuffix("\n...")
