"""From a recipe's name or file to a checked `Recipe`.

A recipe is merged from the models' defaults, the chain of recipes it extends, its own file, and
overrides, in this order; each value knows where it was set last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nmtdeep.config import names
from nmtdeep.config.problems import explain
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.source import KeyPath, Origin, Source, parse_override, read_file
from nmtdeep.errors import ConfigError

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
        origin = self.origins.get(path)
        if origin is None:
            return "default"
        return "override" if origin.is_override else str(origin)


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or file, with `key.path=value` overrides on top."""
    return resolve(name_or_path, overrides).recipe


def resolve(name_or_path: str, overrides: Sequence[str] = ()) -> ResolvedRecipe:
    """As `load_recipe`, with the origin of each value."""
    file = names.find(name_or_path)
    source = _read_chain(file)
    for text in overrides:
        source = merge(source, parse_override(text))
    return _check(source, names.label(file))


def read_config(path: Path) -> Recipe:
    """The resolved recipe of a run: its `config.yaml`, or the directory that holds it.

    It extends nothing: other files may have gone, and it may come from a stranger.
    """
    path = path / "config.yaml" if path.is_dir() else path
    return _check(merge(_defaults(), read_file(path, str(path))), str(path)).recipe


def from_mapping(values: Mapping[str, Any], label: str = "recipe") -> Recipe:
    """Check values that do not come from a file."""
    return _check(merge(_defaults(), Source(values=dict(values))), label).recipe


def merge(below: Source, above: Source) -> Source:
    """Lay one source over another: mappings merge, everything else is replaced.

    A section whose `type` changes is replaced, since a variant has only its own fields; an empty
    section changes nothing; a bare word is the name of a type.
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
        shared = {
            key: lay(old[key], value, (*path, key)) for key, value in new.items() if key in old
        }
        return {**old, **new, **shared}

    values = lay(below.values, above.values, ())
    kept = {
        key: origin
        for key, origin in below.origins.items()
        if not any(key[:length] in replaced for length in range(len(key) + 1))
    }
    types = {(*path, "type"): above.origins[path] for path in shorthand if path in above.origins}
    return Source(values, {**kept, **above.origins, **types})


def _defaults() -> Source:
    return Source(values=Recipe().model_dump(mode="json"))


def _read_chain(file: Path, below: tuple[Path, ...] = ()) -> Source:
    """The file's values laid over those of the recipes that it extends.

    Args:
        file: a recipe.
        below: the files that lead to this one.
    """
    source = read_file(file, names.label(file))
    parent = source.values.pop("extends", None)
    origin = source.origins.pop(("extends",), None)
    if origin is None:
        return merge(_defaults(), source)
    where = f"{origin}: extends"
    if not isinstance(parent, str):
        raise ConfigError("must be the name or file of one recipe", where=where)
    try:
        above = names.find(parent, file.parent)
    except ConfigError as error:
        (problem,) = error.problems
        where = ": ".join(filter(None, (where, problem.where)))
        raise ConfigError(problem.what, where=where, hint=problem.hint) from None
    below = (*below, file.resolve())
    if above.resolve() in below:
        what = f"{parent} extends this recipe in turn"
        raise ConfigError(what, where=where, hint="break the circle")
    inherited, defaults = _read_chain(above, below), _defaults()
    for name in _OF_ONE_RECIPE:
        inherited.values[name] = defaults.values[name]
    origins = {key: each for key, each in inherited.origins.items() if key[0] not in _OF_ONE_RECIPE}
    return merge(Source(inherited.values, origins), source)


def _check(source: Source, label: str) -> ResolvedRecipe:
    try:
        return ResolvedRecipe(Recipe.model_validate(source.values), source.origins)
    except ValidationError as error:
        raise explain(error, source, label) from None
