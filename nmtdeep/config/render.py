"""A recipe as YAML text: plain, with the origin of each value, or only what differs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.emitter import Emitter
from ruamel.yaml.nodes import ScalarNode, SequenceNode
from ruamel.yaml.representer import SafeRepresenter

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.source import KeyPath
from nmtdeep.errors import printable

_WIDEST = 48


class _Emitter(Emitter):
    # Above this length a key has a line of its own, behind a question mark.
    MAX_SIMPLE_KEY_LENGTH = 1000


class _Representer(SafeRepresenter):
    """Lists on one line; text with invisible characters in double quotes, which escape them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_list(self, data: Any) -> SequenceNode:
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)

    def represent_str(self, data: Any) -> ScalarNode:
        style = None if data.isprintable() else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Representer.add_representer(list, _Representer.represent_list)
_Representer.add_representer(str, _Representer.represent_str)


def to_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML, a line for each value that is not a mapping."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.Emitter = _Emitter
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    yaml.width = sys.maxsize
    stream = StringIO()
    yaml.dump(values, stream)
    return stream.getvalue()


def dump(recipe: Recipe) -> str:
    """The whole recipe as YAML that loads back equal."""
    return to_yaml(_short(recipe.model_dump(mode="json")))


def annotated(recipe: Recipe, origin: Callable[[KeyPath], str]) -> str:
    """As `dump`, with `origin(key path)` as an aligned comment behind each value."""
    values = recipe.model_dump(mode="json")
    lines = list(zip(to_yaml(_short(values)).splitlines(), _paths(values), strict=True))
    column = max(len(text) for text, path in lines if path and len(text) <= _WIDEST)
    return "".join(
        f"{text:<{column}}  # {origin(path)}\n" if path else f"{text}\n" for text, path in lines
    )


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """Leaves in which two dumped recipes differ, as `key.path: old -> new`, in YAML."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [printable(f"{prefix}: {_inline(old)} -> {_inline(new)}")]
    return [
        change
        for key in dict.fromkeys([*old, *new])
        for change in differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
    ]


def _paths(values: Mapping[str, Any], above: KeyPath = ()) -> Iterator[KeyPath | None]:
    """For each line of a dump the path of its value; None where a section begins."""
    for key, value in values.items():
        path = (*above, key)
        if not (isinstance(value, dict) and value):
            yield path
        elif isinstance(_short(value), str):
            yield (*path, "type")
        else:
            yield None
            yield from _paths(value, path)


def _short(value: Any) -> Any:
    """A variant without fields is its name."""
    match value:
        case {"type": str(name)} if len(value) == 1:
            return name
        case dict():
            return {key: _short(item) for key, item in value.items()}
        case list():
            return [_short(item) for item in value]
    return value


def _inline(value: Any) -> str:
    return to_yaml({"": [value]}).partition("[")[2].removesuffix("]\n")
