"""YAML text to plain values that remember the line each key was written on.

The scalars are those of YAML 1.2: `1e-4` is a number, `no` is a language and not a boolean.
Aliases and tags are refused: a recipe from the internet can neither grow nor build objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from nmtdeep.errors import ConfigError

KeyPath = tuple[str | int, ...]
LARGEST_FILE = 1_000_000
DEEPEST = 20
LONGEST_QUOTE = 200
TAG = "tag:yaml.org,2002:"
_FLOAT = re.compile(
    r"(?:[-+]?(?:(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9][0-9_]*[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN))$"
)
SCALARS = (
    ("null", re.compile(r"(?:~|null|Null|NULL|)$")),
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")),
    ("int", re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")),
    ("float", _FLOAT),
)

_TOO_DEEP = "nested too deeply: is this really a recipe?"
_SURROGATE = re.compile("[\ud800-\udfff]")
_HALF = "with half a character (\\ud800 to \\udfff): write the whole one"


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a line of a file, or an override (which has no line)."""

    place: str
    line: int | None = None

    @property
    def is_override(self) -> bool:
        """Overrides are said on the command line and have no line number."""
        return self.line is None

    def __str__(self) -> str:
        return self.place if self.line is None else f"{self.place}:{self.line}"


@dataclass(frozen=True)
class Problem:
    """One thing to mend, and where it stands."""

    origin: Origin
    what: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.what}"


@dataclass
class Source:
    """The plain values of one or more files, where each key path was written, what is wrong."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class Loader(yaml.SafeLoader):
    """Composes nodes only; its scalars are resolved by `SCALARS`, and aliases are refused."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 (PyYAML's own name and shape)
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse `*alias`, by which a short file says a very long one, and depth, which is slow."""
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem="aliases are not allowed: write the value out", problem_mark=mark
            )
        self.depth += 1
        if self.depth > 3 * DEEPEST:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=_TOO_DEEP, problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, _pattern in SCALARS:
    Loader.add_implicit_resolver(f"{TAG}{_name}", _pattern, None)


def read_file(path: Path, label: str) -> Source:
    """Read a recipe file; `label` names it in messages."""
    return parse(_read_text(path, label), label)


def parse(text: str, label: str) -> Source:
    """The mapping that `text` holds."""
    node = _compose(text, label)
    if node is None:
        raise ConfigError(f"{label}: the file is empty: write at least a description")
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{label}:{_line(node)}: not a recipe: write `key: value` lines")
    return _collect(node, label)


def parse_override(text: str) -> Source:
    """`key.path=value` as a source of its own; the value is a scalar or a flow collection."""
    label = f"override {text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + ' ...'!r}"
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise ConfigError(f"{label}: not an override: write key.path=value")
    source = Source()
    walk = _Walk(label, source, lines=False)
    node = _compose(value, label)
    source.origins[path] = Origin(label)
    inner: Any = None if node is None else _construct(node, path, walk)
    for part in reversed(path):
        inner = {part: inner}
    source.values = inner
    return source


def _read_text(path: Path, label: str) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(f"{label}: no such file: check the name") from None
    except IsADirectoryError:
        raise ConfigError(f"{label}: is a directory: name a recipe file in it") from None
    except PermissionError:
        raise ConfigError(f"{label}: no permission to read it: change its mode") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{label}: cannot be read ({error}): check the name") from None
    if len(content) > LARGEST_FILE:
        raise ConfigError(f"{label}: larger than 1 MB: is this really a recipe?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}: not UTF-8: save the file as UTF-8") from None


def _compose(text: str, label: str) -> yaml.Node | None:
    loader = None
    try:
        loader = Loader(text)
        return loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.context_mark if _unclosed(error) else error.problem_mark
        where = label if mark is None or "\n" not in text else f"{label}:{mark.line + 1}"
        raise ConfigError(f"{where}: {_syntax(error)}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = error.character if isinstance(error.character, int) else ord(error.character)
        raise ConfigError(
            f"{label}:{line}: a control character (U+{character:04X}) is not allowed: delete it"
        ) from None
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"{label}: not YAML ({error}): check what is written there") from None
    finally:
        if loader is not None:
            loader.dispose()


def _unclosed(error: yaml.MarkedYAMLError) -> bool:
    return error.context_mark is not None and "stream" in str(error.problem)


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem = str(error.problem)
    if _unclosed(error):
        return "a bracket or quote opened here is never closed: close it"
    if problem.startswith(("aliases", "nested")):
        return problem
    if "single document" in str(error.context):
        return "a second document starts here: keep one recipe in a file"
    if "'\\t'" in problem:
        return "a tab cannot indent YAML: use spaces"
    context = f" {error.context}" if error.context else ""
    return f"not YAML: {problem}{context}: check indentation, colons and quotes"


@dataclass(frozen=True)
class _Walk:
    """What stays the same while the nodes of one text are constructed."""

    label: str
    source: Source
    lines: bool = True

    def origin(self, node: yaml.Node) -> Origin:
        return Origin(self.label, _line(node) if self.lines else None)

    def problem(self, node: yaml.Node, path: KeyPath, what: str) -> None:
        text = f"{dotted(path)}: {what}" if path else what
        self.source.problems.append(Problem(self.origin(node), text))


def _collect(node: yaml.MappingNode, label: str) -> Source:
    source = Source()
    source.values = _construct(node, (), _Walk(label, source))
    return source


def _construct(node: yaml.Node, path: KeyPath, walk: _Walk) -> Any:
    if len(path) > DEEPEST:
        walk.problem(node, (), _TOO_DEEP)
        return None
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, path, walk)
    if node.tag not in (f"{TAG}map", f"{TAG}seq"):
        walk.problem(node, path, f"the tag {node.tag} is not allowed: delete it")
    if isinstance(node, yaml.MappingNode):
        return dict(_items(node, path, walk))
    items = []
    for index, child in enumerate(node.value):
        walk.source.origins[(*path, index)] = walk.origin(child)
        items.append(_construct(child, (*path, index), walk))
    return items


def _items(node: yaml.MappingNode, path: KeyPath, walk: _Walk) -> Iterator[tuple[str, Any]]:
    first: dict[str, int] = {}
    for key, child in node.value:
        if not isinstance(key, yaml.ScalarNode):
            walk.problem(key, path, "a key must be a word: is a colon or quote missing?")
            continue
        name = str(key.value)
        if _SURROGATE.search(name):
            walk.problem(key, path, f"a key {_HALF}")
            continue
        if name in first:
            what = f"written twice (also on line {first[name]}): keep one"
            walk.problem(key, (*path, name), what)
            continue
        first[name] = _line(key)
        walk.source.origins[(*path, name)] = walk.origin(key)
        yield name, _construct(child, (*path, name), walk)


def _scalar(node: yaml.ScalarNode, path: KeyPath, walk: _Walk) -> Any:
    text = str(node.value)
    convert = _CONVERSIONS.get(node.tag.removeprefix(TAG))
    if convert is None:
        walk.problem(node, path, f"the tag {node.tag} is not allowed: delete it")
        return None
    if _SURROGATE.search(text):
        walk.problem(node, path, f"text {_HALF}")
        return None
    try:
        return convert(text)
    except ValueError:
        walk.problem(node, path, f"{text[:20]!r} cannot be read as a number: check its digits")
        return None


def _number(text: str) -> float:
    return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))


_CONVERSIONS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "null": lambda _: None,
    "bool": lambda text: text.lower() == "true",
    "int": lambda text: int(text.replace("_", "")),
    "float": lambda text: _number(text.lower()),
}


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def dotted(path: KeyPath) -> str:
    """`("model", "sublayers", 2)` as `model.sublayers[2]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
