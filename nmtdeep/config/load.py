"""From a recipe's name or file to a checked `Recipe`, and back to YAML.

A recipe is merged from the models' defaults, the chain of recipes it extends, its own file, and
overrides, in this order; each value remembers who said it last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nmtdeep.config import names
from nmtdeep.config.problems import config_error, explain
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import dump
from nmtdeep.config.yaml_source import (
    KeyPath,
    Origin,
    Problem,
    Source,
    parse_override,
    read_file,
)
from nmtdeep.errors import ConfigError

__all__ = [
    "RecipeEntry",
    "ResolvedRecipe",
    "dump",
    "from_mapping",
    "list_recipes",
    "load_recipe",
    "read_config",
    "resolve",
]

_OF_ONE_RECIPE = ("description", "reference")


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe, and where each of its values was written."""

    recipe: Recipe
    origins: Mapping[KeyPath, Origin]

    def origin(self, path: KeyPath) -> str:
        """`file:line`, `override` or `default`."""
        while path and isinstance(path[-1], int) and path not in self.origins:
            path = path[:-1]
        found = self.origins.get(path)
        if found is None:
            return "default"
        return "override" if found.is_override else str(found)


@dataclass(frozen=True)
class RecipeEntry:
    """A shipped recipe, as `recipes list` shows it."""

    name: str
    description: str
    path: Path


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or file, with `key.path=value` overrides on top."""
    return resolve(name_or_path, overrides).recipe


def resolve(name_or_path: str, overrides: Sequence[str] = ()) -> ResolvedRecipe:
    """As `load_recipe`, keeping the origin of each value."""
    file = names.find(name_or_path)
    source = _read_chain(file, ())
    for text in overrides:
        source = merge(source, parse_override(text))
    return _check(source, file.label)


def read_config(path: Path) -> Recipe:
    """The resolved recipe of a run: its `config.yaml`, or the directory that holds it.

    It extends nothing: other files may not be there any more, and it may come from a stranger.
    """
    path = path / "config.yaml" if path.is_dir() else path
    return _check(merge(_defaults(), read_file(path, str(path))), str(path)).recipe


def from_mapping(values: Mapping[str, Any], label: str = "recipe") -> Recipe:
    """Check values that come from elsewhere than a file."""
    return _check(merge(_defaults(), Source(values=dict(values))), label).recipe


def list_recipes() -> list[RecipeEntry]:
    """All shipped recipes by name."""
    root = names.recipes_root()
    entries = []
    for name in names.names():
        path = root / f"{name}.yaml"
        source = read_file(path, f"recipes/{name}.yaml")
        entries.append(RecipeEntry(name, str(source.values.get("description", "")), path))
    return entries


def merge(below: Source, above: Source) -> Source:
    """Lay one source over another: mappings merge, everything else is replaced.

    A section whose `type` changes is replaced, for a variant has only its own fields; a section
    left empty says nothing; a bare word stands for a type.
    """
    replaced: set[KeyPath] = set()
    shorthand: list[KeyPath] = []

    def lay(old: Any, new: Any, path: KeyPath) -> Any:
        if isinstance(old, dict) and new is None:
            return old
        if isinstance(old, dict) and "type" in old and isinstance(new, str):
            shorthand.append(path)
            new = {"type": new}
        both = isinstance(old, dict) and isinstance(new, dict)
        if not both or new.get("type", old.get("type")) != old.get("type"):
            replaced.add(path)
            return new
        mine = {key: lay(old[key], value, (*path, key)) for key, value in new.items() if key in old}
        return {**old, **new, **mine}

    values = lay(below.values, above.values, ())
    kept = {
        key: origin
        for key, origin in below.origins.items()
        if not any(key[:length] in replaced for length in range(len(key) + 1))
    }
    types = {(*path, "type"): above.origins[path] for path in shorthand if path in above.origins}
    return Source(values, {**kept, **above.origins, **types}, below.problems + above.problems)


def _defaults() -> Source:
    return Source(values=Recipe().model_dump(mode="json"))


def _read_chain(file: names.RecipeFile, seen: tuple[str, ...]) -> Source:
    """The file's values laid over those of the recipes it extends."""
    source = read_file(file.path, file.label)
    parent = source.values.pop("extends", None)
    where = source.origins.pop(("extends",), None)
    if where is None:
        return merge(_defaults(), source)
    if not isinstance(parent, str) or not parent.strip():
        source.problems.append(Problem(where, "extends: must be the name or file of one recipe"))
        return merge(_defaults(), source)
    try:
        above = file.parent(parent)
    except ConfigError as error:
        raise ConfigError(f"{where}: extends: {error}") from None
    seen = (*seen, file.identity)
    if above.identity in seen:
        raise ConfigError(
            f"{where}: extends: {parent} extends this recipe in turn: break the circle"
        )
    if not above.path.is_file():
        raise ConfigError(f"{where}: extends: no such file {above.label}: check the name")
    return merge(_without(_read_chain(above, seen), _OF_ONE_RECIPE), source)


def _without(source: Source, sections: Sequence[str]) -> Source:
    """Back to the defaults in sections that speak of one recipe only."""
    values = {**source.values, **{name: _defaults().values[name] for name in sections}}
    origins = {key: value for key, value in source.origins.items() if key[0] not in sections}
    return Source(values, origins, source.problems)


def _check(source: Source, label: str) -> ResolvedRecipe:
    problems = list(source.problems)
    try:
        recipe = Recipe.model_validate(source.values)
    except ValidationError as error:
        raise config_error(problems + explain(error, source, label)) from None
    if problems:
        raise config_error(problems)
    return ResolvedRecipe(recipe, source.origins)
