"""Errors of pydantic as problems of a recipe: the key, its line, and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from typing import Any

from pydantic import ValidationError

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import ConflictError, Section
from nmtdeep.config.source import KeyPath, Origin, Source, dotted
from nmtdeep.config.spelling import instead, similar
from nmtdeep.config.values import value_problem
from nmtdeep.config.variant import section_of, tag_of, variants
from nmtdeep.errors import ConfigError, Problem

# Explaining one takes about a millisecond, and readers do not need more.
MOST = 100


def explain(error: ValidationError, source: Source, label: str) -> ConfigError:
    """All problems as one error, in the order of the lines; overrides come last."""
    problems: list[tuple[Origin, Problem]] = []
    details: list[Any] = list(error.errors(include_url=False))
    for detail in details[:MOST]:
        path, section = _place(detail["loc"], source.values)
        if isinstance(conflict := detail.get("ctx", {}).get("error"), ConflictError):
            # The first key that an override sets, else the first that a file sets, else the first.
            keys = [(*path, *below) for below in conflict.paths]
            lines = {key: source.origins[key].line for key in keys if key in source.origins}
            start, path = path, min(lines, key=lambda key: lines[key] > 0, default=keys[0])
            what = conflict.what.removeprefix(f"{dotted(path[len(start) :])}: ")
            problem = Problem(what, "", conflict.hint)
        elif detail["type"] == "extra_forbidden":
            problem = _unknown_key(path, section)
        else:
            problem = value_problem(detail)
        origin = _locate(path, source.origins) or Origin(label)
        where = f"{origin}: {dotted(path)}" if path else str(origin)
        problems.append((origin, Problem(problem.what, where, problem.hint)))
    problems.sort(key=lambda entry: (not entry[0].line, entry[0].place, entry[0].line))
    if len(details) > MOST:
        what = f"and {len(details) - MOST} more problems"
        problems.append((Origin(label), Problem(what, label, "fix these first")))
    return ConfigError(problems=dict.fromkeys(problem for _, problem in problems))


def _unknown_key(path: KeyPath, section: type[Section]) -> Problem:
    names = tuple(part for part in path if isinstance(part, str))
    siblings = [name for name in section.model_fields if name != "type"]
    known = [*keys(), *((*names[:-1], name) for name in siblings)]
    cure, nearby = instead("key", names[-1]), 0.6 if tag_of(section) else 0.8
    if names[-1] == "extends":
        hint = "only a recipe file can extend another, on its top level"
    elif names in known:
        hint = f"type {tag_of(section)} does not have it"
    elif " " in cure:
        hint = cure
    elif key := cure or _similar(names[-1], siblings, {key[-1] for key in known}, nearby):
        hint = f"did you mean {' or '.join(_nearest(key, names, known))}?"
    else:
        hint = f"choose from {', '.join(siblings)}" if siblings else "delete it"
    return Problem("unknown key", "", hint)


def _similar(name: str, siblings: list[str], everywhere: set[str], nearby: float) -> str:
    """A sibling as similar as `nearby`, else this key elsewhere, else a similar key, or nothing."""
    for words, cutoff in ((siblings, nearby), (everywhere, 1), (siblings, 0.6), (everywhere, 0.8)):
        if found := similar(name, words, cutoff=cutoff):
            return found[0]
    return ""


def _nearest(name: str, path: tuple[str, ...], known: Iterable[tuple[str, ...]]) -> list[str]:
    """Up to three keys that end in `name`: those with the most sections in common with `path`."""
    end = tuple(name.split("."))
    shared: dict[str, tuple[int, bool]] = {}
    for key in known:
        if key[-len(end) :] == end:
            common = takewhile(lambda pair: pair[0] == pair[1], zip(key, path, strict=False))
            shared[".".join(key)] = (len([*common]), len(key) == len(path))
    return [key for key, same in shared.items() if same == max(shared.values())][:3]


@cache
def keys() -> tuple[tuple[str, ...], ...]:
    """The path of every key that a recipe may have, outer keys first."""

    def below(section: type[Section], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for name, field in section.model_fields.items():
            path = (*above, name)
            yield path
            for variant in variants(field.annotation):
                yield from below(variant, path)

    return tuple(dict.fromkeys(below(Recipe, ())))


def _place(location: KeyPath, values: Any) -> tuple[KeyPath, type[Section]]:
    """The keys of a location of pydantic, and the model with the last one.

    pydantic's locations also have the types of a union, and `[key]`.
    """
    path: KeyPath = ()
    section: type[Section] = Recipe
    annotation: Any = None
    for part in location:
        section = section_of(annotation, values) or section
        inner = dict(enumerate(values)) if isinstance(values, list | tuple) else values
        inner = inner if isinstance(inner, dict) else {}
        if isinstance(part, int) or part in (inner | section.model_fields):
            field = section.model_fields.get(str(part))
            annotation = annotation if field is None else field.annotation
            path, values = (*path, part), inner.get(part)
    return path, section


def _locate(path: KeyPath, origins: Mapping[KeyPath, Origin]) -> Origin | None:
    """An override of `path` or below it, else its line, else one below it, else one above it."""
    inside = [key for key in origins if key[: len(path)] == path]
    first = min(inside, key=lambda key: (origins[key].line > 0, key != path), default=None)
    return origins[first] if first else (_locate(path[:-1], origins) if path else None)
