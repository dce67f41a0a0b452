"""What pydantic rejects, in the words of a recipe: the key, its line, and a hint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from pydantic import ValidationError

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import ConflictError, Section, choices_of, tag_of, variants
from nmtdeep.config.source import KeyPath, Origin, RecipeProblem, Source
from nmtdeep.config.values import listed, near, shown, value_problem
from nmtdeep.errors import Problem

# Each takes about a millisecond to explain, and no reader needs more.
MOST = 100


@dataclass(frozen=True)
class _Place:
    """A location of pydantic in the models.

    Attributes:
        path: the keys as the recipe has them; pydantic adds the tags of the chosen variants.
        section: the model with the last key of the path.
        annotation: the type of that key; None for an unknown one.
    """

    path: KeyPath
    section: type[Section]
    annotation: Any


def explain(error: ValidationError, source: Source, label: str) -> list[RecipeProblem]:
    """One problem for each thing that pydantic rejected."""
    details: list[Any] = list(error.errors(include_url=False))
    problems = []
    for detail in details[:MOST]:
        place = _place(detail["loc"], source.values)
        if detail["type"] == "too_short" and any(
            other["loc"][: len(detail["loc"])] == detail["loc"] and other is not detail
            for other in details
        ):
            continue  # pydantic counts only the valid items of a list
        problem = _explained(detail, place)
        path = place.path
        if isinstance(conflict := detail.get("ctx", {}).get("error"), ConflictError):
            path = _culprit([(*path, *below) for below in conflict.paths], source.origins)
        origin = _locate(path, source.origins) or Origin(label)
        problems.append(RecipeProblem(origin, path, problem.what, problem.hint))
    if len(details) > MOST:
        what = f"and {len(details) - MOST} more problems"
        problems.append(RecipeProblem(Origin(label), (), what, "fix these first"))
    return problems


def _explained(detail: Any, place: _Place) -> Problem:
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    choices = choices_of(place.annotation)
    if isinstance(conflict := context.get("error"), ConflictError):
        return Problem(conflict.what, "", conflict.hint)
    match kind:
        case "extra_forbidden":
            return _unknown_key(place)
        case "union_tag_not_found":
            return Problem("has no type", "", f"choose {listed(choices)}")
        case "union_tag_invalid" | "literal_error":
            value = value.get("type") if isinstance(value, dict) else value
            noun = "type" if kind == "union_tag_invalid" else "choice"
            hint = " ".join(filter(None, (near(value, choices), f"choose {listed(choices)}")))
            return Problem(f"{shown(value)} is not a {noun} here", "", hint)
        case "string_pattern_mismatch":
            return Problem(
                f"must have the form {context['pattern'].strip('^$')}, not {shown(value)}"
            )
        case "missing":
            return Problem("is missing", "", "write a value")
        case _:
            return value_problem(detail)


def _unknown_key(place: _Place) -> Problem:
    *above, key = (part for part in place.path if isinstance(part, str))
    if key == "extends":
        what = "only a recipe file can extend another, on its top level"
        return Problem(what, "", "delete this")
    siblings = [name for name in place.section.model_fields if name != "type"]
    owners = [tag for path, tag in _keys() if path == (*above, key) and tag]
    if owners:
        what = f"unknown key of type {tag_of(place.section)}"
        return Problem(what, "", f"it belongs to type {' and '.join(owners)}")
    similar = get_close_matches(key, [path[-1] for path, _ in _keys()], n=1, cutoff=0.8)
    hint = (
        _elsewhere(key, above)
        or near(key, siblings)
        or _elsewhere("".join(similar), above)
        or (f"choose from {', '.join(siblings)}" if siblings else "delete it")
    )
    return Problem("unknown key", "", hint)


def _elsewhere(key: str, above: Sequence[str]) -> str:
    """Where a key of this name may be, those of the same top section first."""
    places = [path for path, _ in _keys() if path[-1] == key]
    places = [path for path in places if path[:1] == tuple(above[:1])] or places
    names = list(dict.fromkeys(map(".".join, places)))[:3]
    return f"did you mean {' or '.join(names)}?" if names else ""


@cache
def _keys() -> tuple[tuple[tuple[str, ...], str | None], ...]:
    """Every key that a recipe may have, and the variant that it belongs to; outer keys first."""

    def below(
        section: type[Section], above: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], str | None]]:
        for name, field in section.model_fields.items():
            path = (*above, name)
            if name != "type":
                yield path, tag_of(section)
            for variant in variants(field.annotation):
                yield from below(variant, path)

    return tuple(below(Recipe, ()))


def _place(location: KeyPath, values: Any) -> _Place:
    """Follow a location of pydantic through the models."""
    section: type[Section] = Recipe
    options: tuple[type[Section], ...] = (Recipe,)
    annotation: Any = None
    path: list[str | int] = []
    for part in location:
        if isinstance(part, str) and options:
            chosen = [option for option in options if tag_of(option) == part]
            if len(options) > 1 and chosen:
                options = tuple(chosen)
                continue
            section = options[0]
            field = section.model_fields.get(part)
            annotation = None if field is None else field.annotation
            options = variants(annotation)
        elif isinstance(part, str) and not isinstance(values, dict):
            continue  # the name of one type of a union
        path.append(part)
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            values = None
    return _Place(tuple(path), section, annotation)


def _culprit(keys: Sequence[KeyPath], origins: Mapping[KeyPath, Origin]) -> KeyPath:
    """The first of these keys that an override or, failing that, a file sets."""
    written = [key for key in keys if key in origins]
    overrides = [key for key in written if origins[key].is_override]
    return [*overrides, *written, *keys][0]


def _locate(path: KeyPath, origins: Mapping[KeyPath, Origin]) -> Origin | None:
    """The line of `path`, else of what is below it, else of what is above it."""
    if path in origins:
        return origins[path]
    below = (origin for key, origin in origins.items() if key[: len(path)] == path)
    return next(below, None) or (_locate(path[:-1], origins) if path else None)
