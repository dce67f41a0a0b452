"""YAML text to plain values that remember the line each key was written on.

ruamel.yaml parses it as YAML 1.2: `1e-4` is a number, `no` is a language and not a boolean.
Anchors, merge keys, unknown tags and deep or large files are rejected: a recipe from the internet
can neither grow nor build objects. The first such problem is reported alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from nmtdeep.errors import ConfigError

LARGEST_FILE = 1_000_000
DEEPEST = 20

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Origin:
    """The origin of a value: a line of a file, or an override, whose line is 0."""

    place: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place


@dataclass
class Source:
    """The plain values of one or more files, and where each key path was written."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def without(self, *keys: str) -> Source:
        """This source without these keys of the top level."""
        return Source(
            {key: value for key, value in self.values.items() if key not in keys},
            {path: origin for path, origin in self.origins.items() if path[0] not in keys},
        )


def dotted(path: KeyPath) -> str:
    """`("model", "sublayers", 2)` as `model.sublayers[2]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def read_file(path: Path, label: str) -> Source:
    """Read a recipe file; `label` names it in messages."""
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError("larger than 1 MB", where=label, hint="is this really a recipe?")
        return parse(content.decode("utf-8-sig"), label)
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise ConfigError(what, where=label, hint="check its name and mode") from None
    except UnicodeDecodeError as error:
        origin = Origin(label, content.count(b"\n", 0, error.start) + 1)
        raise ConfigError("not UTF-8", where=origin, hint="save the file as UTF-8") from None


def parse(text: str, label: str) -> Source:
    """The mapping that `text` holds."""
    values, lines = _load(text, label)
    if values is None:
        raise ConfigError("the file is empty", where=label, hint="write at least a description")
    if not isinstance(values, dict):
        raise ConfigError("not a recipe", where=label, hint="write `key: value` lines")
    return Source(values, {path: Origin(label, line) for path, line in lines.items()})


def parse_override(text: str) -> Source:
    """`key.path=value` as a source of its own; the value is a scalar or a flow collection."""
    label = f"override {text[:200]!r}"
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError("not an override", where=label, hint="write key.path=value")
    values, lines = _load(value, label)
    for part in reversed(path):
        values = {part: values}
    return Source(values, {(*path, *inner): Origin(label) for inner in [(), *lines]})


def _load(text: str, label: str) -> tuple[Any, dict[KeyPath, int]]:
    """The values of a YAML text, and the line of each key and each item of a list."""
    lines: dict[KeyPath, int] = {}
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = DEEPEST

    def note(node: Node, path: KeyPath) -> None:
        mark = node.start_mark
        if node.anchor or str(node.tag).endswith(":merge"):
            what = "anchors, aliases and merge keys are not allowed"
            raise MarkedYAMLError(problem=what, problem_mark=mark)
        if path:
            lines.setdefault(path, mark.line + 1)
        match node:
            case ScalarNode():
                node.value.encode()  # an error if it has half a character, \ud800 to \udfff
            case SequenceNode():
                for index, child in enumerate(node.value):
                    note(child, (*path, index))
            case MappingNode():
                for key, child in node.value:
                    inner = (*path, str(key.value))
                    if inner in lines:
                        where = f"{Origin(label, key.start_mark.line + 1)}: {dotted(inner)}"
                        hint = f"merge it with line {lines[inner]}"
                        raise ConfigError("is given twice", where=where, hint=hint)
                    note(key, inner)
                    note(child, inner)

    position = None
    try:
        node = yaml.compose(text)
        if node is None:
            return None, lines
        note(node, ())
        return yaml.constructor.construct_document(node), lines
    except MarkedYAMLError as error:
        marks = [error.problem_mark, error.context_mark]  # the latter: where a bracket opens
        position = next((mark.index for mark in marks if mark and mark.index < len(text)), None)
        what = ", ".join(filter(None, (error.context, error.problem)))
        if isinstance(error, MaxDepthExceededError):
            what = f"more than {DEEPEST} levels"
    except (YAMLError, YAMLStreamError, ValueError, LookupError, AssertionError) as error:
        position, what = getattr(error, "position", None), getattr(error, "reason", str(error))
    line = text.count("\n", 0, position) + 1 if position is not None and "\n" in text else 0
    hint = "check indentation, colons, brackets and quotes"
    raise ConfigError(f"not YAML: {what}", where=Origin(label, line), hint=hint)
