"""YAML text to plain values that remember the line each key was written on.

ruamel.yaml parses it as YAML 1.2: `1e-4` is a number, `no` is a language and not a boolean.
Anchors, aliases, merge keys and tags are rejected, and so are deep or large files: a recipe from
the internet can neither grow nor build objects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError, YAMLStreamError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from nmtdeep.config.source import KeyPath, Origin, RecipeProblem, Source
from nmtdeep.errors import ConfigError

LARGEST_FILE = 1_000_000
DEEPEST = 20
LONGEST_QUOTE = 200
_TAG = "tag:yaml.org,2002:"
_NUMBERS = ("null", "bool", "int", "float")
# Dates are not part of YAML 1.2, and `=` was a type of its own in YAML 1.1.
_TEXTS = ("str", "timestamp", "value")
_SURROGATE = re.compile("[\ud800-\udfff]")


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
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        what = f"cannot be read ({reason})"
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

    def error(what: str, line: int | None, hint: str) -> ConfigError:
        has_line = line is not None and "\n" in text
        return ConfigError(what, where=f"{label}:{line}" if has_line else label, hint=hint)

    try:
        node: Node | None = yaml.compose(text)
        return node
    except MaxDepthExceededError as problem:
        line = problem.problem_mark.line + 1
        raise error("nested too deeply", line, "is this really a recipe?") from None
    except MarkedYAMLError as problem:
        first, last = problem.context_mark, problem.problem_mark
        if first is not None and last.index >= len(text):
            raise error("a bracket or quote is never closed", first.line + 1, "close it") from None
        words = ", ".join(filter(None, (problem.context, problem.problem)))
        tab = text[last.index : last.index + 1] == "\t"
        hint = "use spaces, not tabs" if tab else "check indentation, colons and quotes"
        raise error(f"not YAML: {words}", last.line + 1, hint) from None
    except ReaderError as problem:
        number = problem.character if isinstance(problem.character, int) else ord(problem.character)
        line = text.count("\n", 0, problem.position) + 1
        raise error(f"a control character (U+{number:04X})", line, "delete it") from None
    except (YAMLError, YAMLStreamError, ValueError, LookupError, AssertionError) as problem:
        raise error(f"not YAML ({problem})", None, "check what is written there") from None


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
                self._report(
                    node, path, "anchors and aliases are not allowed", "write out the value"
                )
            case ScalarNode() if kind in _TEXTS:
                if not _SURROGATE.search(node.value):
                    return str(node.value)
                self._report(node, path, "half a character (\\ud800 to \\udfff)", "write it whole")
            case ScalarNode() if kind in _NUMBERS:
                try:
                    return self.yaml.constructor.construct_object(node)
                except (ValueError, LookupError):
                    what = f"{node.value[:20]!r} cannot be read as a number"
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
        first: dict[str, int] = {}
        values = {}
        for key, child in node.value:
            if not isinstance(key, ScalarNode) or key.tag != f"{_TAG}str" or key.anchor:
                self._report(key, path, "a key must be text", "put it in quotes")
            elif _SURROGATE.search(key.value):
                self._report(key, path, "a key with half a character", "write the whole one")
            elif key.value in first:
                what = f"written twice (also on line {first[key.value]})"
                self._report(key, (*path, key.value), what, "keep one")
            else:
                inner = (*path, key.value)
                first[key.value] = key.start_mark.line + 1
                self.source.origins[inner] = self._origin(key)
                values[key.value] = self.value(child, inner)
        return values

    def _origin(self, node: Node) -> Origin:
        return Origin(self.label, node.start_mark.line + 1 if self.has_lines else None)

    def _report(self, node: Node, path: KeyPath, what: str, hint: str) -> None:
        self.source.problems.append(RecipeProblem(self._origin(node), path, what, hint))
