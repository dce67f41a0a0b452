"""YAML text to plain values that remember the line each key was written on.

ruamel.yaml parses it as YAML 1.2: `1e-4` is a number, `no` is a language and not a boolean.
Anchors, aliases, merge keys and tags are rejected, and so are deep or large files: a recipe from
the internet can neither grow nor build objects.
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

from nmtdeep.errors import ConfigError, Problem

LARGEST_FILE = 1_000_000
DEEPEST = 20
LONGEST_QUOTE = 200
_TAG = "tag:yaml.org,2002:"
_NUMBERS = ("null", "bool", "int", "float")
# Dates are not part of YAML 1.2, and `=` was a type of its own in YAML 1.1.
_TEXTS = ("str", "timestamp", "value")

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
    """The plain values of one or more files, where each key path was written, what is wrong."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    problems: list[tuple[Origin, Problem]] = field(default_factory=list)

    def report(self, origin: Origin, path: KeyPath, what: str, hint: str) -> None:
        """Add a problem of the key `path`; without a path, of the whole file."""
        where = f"{origin}: {dotted(path)}" if path else str(origin)
        self.problems.append((origin, Problem(what, where, hint)))

    def check(self) -> None:
        """Raise all problems as one ConfigError, in the order of the lines; overrides come last."""

        def order(entry: tuple[Origin, Problem]) -> tuple[bool, str, int]:
            origin, _ = entry
            return origin.is_override, origin.place, origin.line or 0

        if self.problems:
            ordered = [problem for _, problem in sorted(self.problems, key=order)]
            raise ConfigError(problems=dict.fromkeys(ordered))


def dotted(path: KeyPath) -> str:
    """`("model", "sublayers", 2)` as `model.sublayers[2]`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def read_file(path: Path, label: str) -> Source:
    """Read a recipe file; `label` names it in messages."""
    return parse(_read_text(path, label), label)


def parse(text: str, label: str) -> Source:
    """The mapping that `text` holds."""
    yaml = _parser()
    node = _compose(yaml, text, label)
    if node is None:
        raise ConfigError("the file is empty", where=label, hint="write at least a description")
    if not isinstance(node, MappingNode):
        where = f"{label}:{node.start_mark.line + 1}"
        raise ConfigError("not a recipe", where=where, hint="write `key: value` lines")
    source = Source()
    source.values = _Construction(yaml, label, source).value(node, ())
    return source


def parse_override(text: str) -> Source:
    """`key.path=value` as a source of its own; the value is a scalar or a flow collection."""
    label = f"override {text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + ' ...'!r}"
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError("not an override", where=label, hint="write key.path=value")
    yaml, source = _parser(), Source(origins={path: Origin(label)})
    node = _compose(yaml, value, label)
    inner = _Construction(yaml, label, source, has_lines=False).value(node, path)
    for part in reversed(path):
        inner = {part: inner}
    source.values = inner
    return source


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


def _compose(yaml: YAML, text: str, label: str) -> Node | None:
    """The tree of nodes, with at most `DEEPEST` levels; None if the text is empty."""
    hint = "check indentation, colons and quotes"
    try:
        node: Node | None = yaml.compose(text)
        return node
    except MaxDepthExceededError as error:
        position, what, hint = error.problem_mark.index, "nested too deeply", "use fewer levels"
    except MarkedYAMLError as error:
        position = error.problem_mark.index
        what = f"not YAML: {', '.join(filter(None, (error.context, error.problem)))}"
        if error.context_mark is not None and position >= len(text):
            position, what = error.context_mark.index, "a bracket or quote is never closed"
            hint = "close it"
        elif text[position : position + 1] == "\t":
            hint = "use spaces, not tabs"
    except (YAMLError, YAMLStreamError, ValueError, LookupError, AssertionError) as error:
        position = getattr(error, "position", 0)
        what = f"not YAML: {getattr(error, 'reason', error)}"
    where = f"{label}:{text.count(chr(10), 0, position) + 1}" if "\n" in text else label
    raise ConfigError(what, where=where, hint=hint)


@dataclass(frozen=True)
class _Construction:
    """Builds plain values from the nodes of one text; notes their lines and what is wrong."""

    yaml: YAML
    label: str
    source: Source
    has_lines: bool = True

    def value(self, node: Node | None, path: KeyPath) -> Any:
        kind = str(node.tag).removeprefix(_TAG) if node else ""
        match node:
            case None:
                return None
            case Node(anchor=str()):
                what = "anchors and aliases are not allowed"
                self._report(node, path, what, "write out the value")
            case ScalarNode() if kind in _NUMBERS + _TEXTS:
                try:
                    if kind in _NUMBERS:
                        return self.yaml.constructor.construct_object(node)
                    node.value.encode()  # not possible with half a character, \ud800 to \udfff
                    return str(node.value)
                except (ValueError, LookupError):
                    what = f"{node.value[:20]!r} cannot be read"
                    self._report(node, path, what, "check its digits")
            case SequenceNode() if kind == "seq":
                for index, child in enumerate(node.value):
                    self.source.origins[(*path, index)] = self._origin(child)
                return [self.value(child, (*path, i)) for i, child in enumerate(node.value)]
            case MappingNode() if kind == "map":
                return self._mapping(node, path)
            case _:
                self._report(node, path, f"the tag {node.tag} is not allowed", "delete it")
        return None

    def _mapping(self, node: Node, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, child in node.value:
            key = self.value(key_node, path)
            inner = (*path, str(key))
            if not isinstance(key, str):
                self._report(key_node, path, "a key must be text", "put it in quotes")
            elif key in values:
                what = f"written twice (also at {self.source.origins[inner]})"
                self._report(key_node, inner, what, "keep one")
            else:
                self.source.origins[inner] = self._origin(key_node)
                values[key] = self.value(child, inner)
        return values

    def _origin(self, node: Node) -> Origin:
        return Origin(self.label, node.start_mark.line + 1 if self.has_lines else None)

    def _report(self, node: Node, path: KeyPath, what: str, hint: str) -> None:
        self.source.report(self._origin(node), path, what, hint)
