"""YAML text to plain values that remember the line each key was written on.

ruamel.yaml parses it as YAML 1.2: `1e-4` is a number, `no` is a language and not a boolean.
Anchors, merge keys, unknown tags and deep or large files are rejected: a recipe from the internet
can neither grow nor build objects. The first such problem is reported alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError
from ruamel.yaml.events import ScalarEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from nmtdeep.errors import ConfigError

LARGEST_FILE = 1_000_000
DEEPEST = 20
LONGEST_QUOTE = 200

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a line of a file, or an override (which has no line)."""

    place: str
    line: int | None = None

    @property
    def is_override(self) -> bool:
        """Overrides come from the command line and have no line number."""
        return self.line is None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass
class Source:
    """The plain values of one or more files, and where each key path was written."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)


def dotted(path: KeyPath) -> str:
    """`("model", "sublayers", 2)` as `model.sublayers[2]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def read_file(path: Path, label: str) -> Source:
    """Read a recipe file; `label` names it in messages."""
    return parse(_read_text(path, label), label)


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
    label = f"override {text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + ' ...'!r}"
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError("not an override", where=label, hint="write key.path=value")
    values, lines = _load(value, label)
    for part in reversed(path):
        values = {part: values}
    return Source(values, {(*path, *inner): Origin(label) for inner in [(), *lines]})


def read_mapping(text: str) -> Any:
    """The values of a YAML file that ships with the package; nothing is checked."""
    return _parser().load(text)


def description(path: Path) -> str:
    """The description of a shipped recipe; nothing behind it is parsed."""
    events: Iterator[Any] = YAML(pure=True).parse(path.read_text(encoding="utf-8"))
    scalars = (event.value for event in events if isinstance(event, ScalarEvent))
    return str(next(scalars)) if "description" in scalars else ""


def _parser() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = DEEPEST
    return yaml


def _read_text(path: Path, label: str) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", where=label, hint="check the name") from None
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
        raise ConfigError(what, where=label, hint="check its name and mode") from None
    if len(content) > LARGEST_FILE:
        raise ConfigError("larger than 1 MB", where=label, hint="is this really a recipe?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        where = f"{label}:{line}"
        raise ConfigError("not UTF-8", where=where, hint="save the file as UTF-8") from None


def _load(text: str, label: str) -> tuple[Any, dict[KeyPath, int]]:
    """The values of a YAML text, and the line of each key and each item of a list."""
    lines: dict[KeyPath, int] = {}
    yaml = _parser()

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
                    note(key, (*path, str(key.value)))
                    note(child, (*path, str(key.value)))

    position, hint = None, "check indentation, colons and quotes"
    try:
        node = yaml.compose(text)
        if node is None:
            return None, lines
        note(node, ())
        return yaml.constructor.construct_document(node), lines
    except MaxDepthExceededError as error:
        position, what, hint = error.problem_mark.index, "nested too deeply", "use fewer levels"
    except MarkedYAMLError as error:
        position = error.problem_mark.index
        what = f"not YAML: {', '.join(filter(None, (error.context, error.problem)))}"
        if error.context_mark is not None and position >= len(text):
            position, what = error.context_mark.index, "a bracket or quote is never closed"
            hint = "close it"
    except (YAMLError, YAMLStreamError, ValueError, LookupError, AssertionError) as error:
        position = getattr(error, "position", None)
        what = f"not YAML: {getattr(error, 'reason', error)}"
    if position is not None and "\n" in text:
        label = f"{label}:{text.count(chr(10), 0, position) + 1}"
    raise ConfigError(what, where=label, hint=hint)
