"""From a recipe's name or file to a checked `Recipe`.

A recipe is merged from the models' defaults, the chain of recipes it extends, its own file, and
overrides, in this order; the origin of each value is the last place that sets it.
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
from nmtdeep.config.source import KeyPath, Origin, Source, dotted, parse_override, read_file
from nmtdeep.config.stages import TEMPERATURE
from nmtdeep.config.text import OF_WORDS, type_of
from nmtdeep.errors import ConfigError
from nmtdeep.files import SUMS

# Loggers that runs of earlier versions name.
GONE = ("mlflow", "trackio")


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe, and where each of its values was written."""

    recipe: Recipe
    origins: Mapping[KeyPath, Origin]

    def origin(self, path: KeyPath) -> str:
        """`file:line`, `override` or `default`."""
        origin = self.origins.get(path)
        if origin is None:
            return "default"
        return str(origin) if origin.line else "override"


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or file, with `key.path=value` overrides on top."""
    return resolve(name_or_path, overrides).recipe


def resolve(
    name_or_path: str, overrides: Sequence[str] = (), text: Mapping[str, Any] | None = None
) -> ResolvedRecipe:
    """As `load_recipe`, with the origin of each value.

    Args:
        text: takes the place of the recipe's section `text`, below the overrides.
    """
    file = names.find(name_or_path)
    stored = file.name == "config.yaml" and (file.parent / SUMS).is_file()  # of a run
    source = _defaults(stored=stored)
    given = [parse_override(override) for override in overrides]
    for above in [_read_stored(file)] if stored else _chain(file):
        source = merge(_retokenized(source, above, given), above)
    if text is not None:
        source = merge(source.without("text"), Source({"text": dict(text)}))
    for above in given:
        source = merge(_retokenized(source, above, given), above)
    return _check(source, names.label(file))


def read_config(path: Path) -> Recipe:
    """The resolved recipe of a run: its `config.yaml`, or the directory that holds it.

    It extends nothing: other files may be missing, and its source may not be trusted.
    """
    path = path / "config.yaml" if path.is_dir() else path
    return _check(merge(_defaults(stored=True), _read_stored(path)), str(path)).recipe


def from_mapping(values: Mapping[str, Any], label: str = "recipe") -> Recipe:
    """Check values that do not come from a file."""
    return _check(merge(_defaults(), Source(values=dict(values))), label).recipe


def merge(below: Source, above: Source) -> Source:
    """Merge one source into another: mappings merge, everything else is replaced.

    A section whose `type` changes is replaced, since a variant has only its own fields; so are
    weights of a mixture by a temperature and vice versa. A bare word is the name of a type.
    """
    replaced: set[KeyPath] = set()
    origins = dict(above.origins)

    def lay(old: Any, new: Any, path: KeyPath) -> Any:
        if isinstance(old, dict):
            if "type" in old and isinstance(new, str):
                new = {"type": new}
                if path in origins:
                    origins[*path, "type"] = origins[path]
            if new == {} and old and path in origins and not origins[path].line:
                where, hint = f"{origins[path]}: {dotted(path)}", "write its keys too"
                raise ConfigError("sets nothing", where=where, hint=hint)
            if isinstance(new, dict) and _is_same_variant(old, new, path):
                return old | {key: lay(old.get(key), new[key], (*path, key)) for key in new}
        replaced.add(path)
        return new

    values = lay(below.values, above.values, ())
    kept = {
        key: origin
        for key, origin in below.origins.items()
        if not any(key[:length] in replaced for length in range(len(key) + 1))
    }
    return Source(values, kept | origins)


def _is_same_variant(old: Mapping[str, Any], new: Mapping[str, Any], path: KeyPath) -> bool:
    if path[-1:] == ("mixture",):  # weights, or a temperature
        return (TEMPERATURE in old) == (TEMPERATURE in new)
    return bool(new.get("type", old.get("type")) == old.get("type"))


def _retokenized(below: Source, above: Source, given: Sequence[Source]) -> Source:
    """`below` without what a SentencePiece tokenizer of `above` replaces.

    Keys that `above` or an override (`given`) sets stay, so that a conflict is an error.
    """
    place = ("text", "tokenizer")
    if place not in above.origins or type_of(above.values["text"]["tokenizer"]) != "sentencepiece":
        return below
    stated = {path for source in (above, *given) for path in source.origins}
    for key, neutral in OF_WORDS.items():
        path, value = ("text", *key), neutral
        if not any(each[: len(path)] == path for each in stated):
            for part in reversed(path):
                value = {part: value}
            below = merge(below, Source(value, {path: above.origins[place]}))
    return below


def _defaults(*, stored: bool = False) -> Source:
    """The defaults; of `stored` recipes, those that keys had before they existed."""
    source = Source(values=Recipe().model_dump(mode="json"))
    if stored:
        source.values["text"]["tokenizer"]["rules"] = "original"
    return source


def _read_stored(file: Path) -> Source:
    """The recipe of a run, which an earlier version may have written."""
    source = read_file(file, str(file))
    training = source.values.get("training")
    if isinstance(training, dict):
        training.pop("sharding", None)  # it changed no update
        if isinstance(given := training.get("log_to"), list):
            training["log_to"] = [name for name in given if name not in GONE]
    return source


def _chain(file: Path) -> list[Source]:
    """The recipe in `file` and those that it extends, the outermost first."""
    chain: list[Source] = []
    files: list[Path] = []
    while True:
        source = read_file(file, names.label(file))
        parent, origin = source.values.get("extends"), source.origins.get(("extends",))
        source = source.without("extends")
        chain.insert(0, source.without("description", "reference") if chain else source)
        files.append(file.resolve())
        if origin is None:
            return chain
        where = f"{origin}: extends"
        if not isinstance(parent, str):
            raise ConfigError("must be the name or file of one recipe", where=where)
        try:
            file = names.find(parent, file.parent)
        except ConfigError as error:
            raise ConfigError(str(error), where=where) from None
        if file.resolve() in files:
            what = f"{parent} extends this recipe in turn"
            raise ConfigError(what, where=where, hint="break the circle")


def _check(source: Source, label: str) -> ResolvedRecipe:
    try:
        return ResolvedRecipe(Recipe.model_validate(source.values), source.origins)
    except ValidationError as error:
        raise explain(error, source, label) from None
