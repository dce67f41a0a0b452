"""The shape of the recipe models: which keys and variants stand where.

The loader asks it for spelling suggestions, `scripts/write_config_reference.py` for its tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import Section
from nmtdeep.config.yaml_source import KeyPath


@dataclass(frozen=True)
class Key:
    """A key that a recipe may hold; `tag` names the variant it belongs to, if any."""

    path: tuple[str, ...]
    tag: str | None

    def __str__(self) -> str:
        return ".".join(self.path)


def variants(annotation: Any) -> tuple[type[Section], ...]:
    """The sections that a field of this type can hold; none for a plain value."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return (annotation,)
    return tuple(found for part in get_args(annotation) for found in variants(part))


def tag_of(section: type[Section]) -> str | None:
    """The `type` by which a variant is chosen."""
    field = section.model_fields.get("type")
    return None if field is None else str(field.default)


def choices_of(annotation: Any) -> tuple[str, ...]:
    """The tags of a field with variants."""
    return tuple(tag for section in variants(annotation) if (tag := tag_of(section)))


def section_at(path: KeyPath, values: Any) -> type[Section] | None:
    """The model that checks the mapping at `path` of these values."""
    options: tuple[type[Section], ...] = (Recipe,)
    for part in path:
        if isinstance(part, str):
            section = _chosen(options, values)
            field = None if section is None else section.model_fields.get(part)
            if field is None:
                return None
            options = variants(field.annotation)
        values = _step(values, part)
    return _chosen(options, values)


def choices_at(path: KeyPath, values: Any) -> tuple[str, ...]:
    """The tags that the slot at `path` (or each item of the list there) may have."""
    names = tuple(part for part in path if isinstance(part, str))
    above = section_at(path[: path.index(names[-1])], values) if names else None
    field = None if above is None else above.model_fields.get(names[-1])
    return () if field is None else choices_of(field.annotation)


def without_tags(location: KeyPath, values: Any) -> KeyPath:
    """A pydantic location as the reader wrote it: pydantic adds the tag of a chosen variant."""
    path: list[str | int] = []
    for part in location:
        is_tag = isinstance(values, dict) and part not in values and values.get("type") == part
        if is_tag:
            continue
        path.append(part)
        values = _step(values, part)
    return tuple(path)


def keys(section: type[Section] = Recipe, above: tuple[str, ...] = ()) -> Iterator[Key]:
    """Every key of every variant, outer keys first."""
    for name, field in section.model_fields.items():
        path = (*above, name)
        if name != "type":
            yield Key(path, tag_of(section))
        for variant in variants(field.annotation):
            yield from keys(variant, path)


@cache
def every_key() -> tuple[Key, ...]:
    """All that a recipe may hold."""
    return tuple(keys())


def _chosen(options: tuple[type[Section], ...], values: Any) -> type[Section] | None:
    if len(options) == 1:
        return options[0]
    tag = values.get("type") if isinstance(values, dict) else values
    return next((section for section in options if tag_of(section) == tag), None)


def _step(values: Any, part: str | int) -> Any:
    try:
        return values[part]
    except (KeyError, IndexError, TypeError):
        return None
