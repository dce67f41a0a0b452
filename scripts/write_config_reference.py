"""Write the tables of docs/config.md (all keys) and docs/recipes.md (all recipes).

Run it after changing either: `python scripts/write_config_reference.py`. It replaces what follows
the marker in each page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from nmtdeep.config.load import load_recipe
from nmtdeep.config.names import list_recipes
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import LARGEST

DOCS = Path(__file__).parent.parent / "docs"
Schema = dict[str, Any]
SCHEMA = Recipe.model_json_schema()
NAMES = {"integer": "whole number", "number": "number", "string": "text"}
NAMES |= {"boolean": "true or false", "null": "null"}
BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}

MARKER = "<!-- What follows is written by scripts/write_config_reference.py; do not edit it. -->\n"


def config_reference() -> str:
    """The tables of docs/config.md."""
    seen: dict[tuple[str, ...], str] = {}
    parts = [_table(SCHEMA)]
    for name, field in SCHEMA["properties"].items():
        parts += _sections(name, field, seen)
    return "\n".join(parts)


def recipe_reference() -> str:
    """The tables of docs/recipes.md."""
    parts = []
    recipes = list_recipes()
    for folder, names in groupby(recipes, key=lambda name: name.rpartition("/")[0]):
        rows = []
        for name in names:
            reference = load_recipe(name).reference
            scores = "; ".join(f"{key} {score:g}" for key, score in reference.scores.items())
            rows.append((f"`{name}`", recipes[name], reference.parameters, scores))
        parts.append(f"### {folder}\n" if folder else "### On their own\n")
        parts.append(_markdown(("recipe", "what", "parameters", "published scores"), rows))
    return "\n".join(parts)


def _sections(path: str, field: Schema, seen: dict[tuple[str, ...], str]) -> Iterator[str]:
    """The section at `path` and those inside it; a set of variants is described once."""
    names = tuple(_references(field))
    sections = [SCHEMA["$defs"][name] for name in names]
    if not sections:
        return
    yield f"## `{path}`\n"
    if names in seen:
        yield f"As [`{seen[names]}`](#{seen[names].replace('.', '')}).\n"
        return
    seen[names] = path
    if "type" in sections[0]["properties"]:
        rows = [row for section in sections for row in (_variant(section), *_fields(section))]
        yield _markdown(("type, or its key", "value", "default", "meaning"), rows)
    else:
        yield f"{_text(sections[0])}\n"
        yield _table(sections[0])
    for section in sections:
        for name, inner in section["properties"].items():
            yield from _sections(f"{path}.{name}", inner, seen)


def _options(field: Schema) -> list[Schema]:
    """What a field can be, without variants of other packages."""
    options = field.get("anyOf") or field.get("oneOf") or []
    external = SCHEMA["$defs"]["External"]["properties"]["type"]["pattern"]
    shown = (each for each in options if each.get("pattern") != external)
    return [each for each in shown if each.get("$ref") != "#/$defs/External"]


def _references(field: Schema) -> Iterator[str]:
    """The names of the sections that a field, or an item of its list, can be."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2]
    if "items" in field:
        yield from _references(field["items"])
    for option in _options(field):
        yield from _references(option)


def _variant(section: Schema) -> tuple[str, ...]:
    return (f"**`{section['properties']['type']['const']}`**", "", "", _text(section))


def _text(section: Schema) -> str:
    return " ".join(section["description"].split())


def _table(section: Schema) -> str:
    return _markdown(("key", "value", "default", "meaning"), _fields(section))


def _fields(section: Schema) -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", _kind(field), _default(field), _meaning(field))
        for name, field in section["properties"].items()
        if name != "type"
    ]


def _meaning(field: Schema) -> str:
    if "description" in field:
        return field["description"].replace("<", "&lt;")
    (first, *_) = _references(field)
    return _text(SCHEMA["$defs"][first])


def _kind(field: Schema) -> str:
    if choices := field.get("enum") or [*filter(None, [field.get("const")])]:
        return ", ".join(f"`{choice}`" for choice in choices)
    if options := _options(field):
        kinds = [*map(_kind, options)]
        # Names of variants come before their sections.
        return kinds[0] if "section" in kinds else ", or ".join(kinds)
    if "$ref" in field:
        return "section"
    if "prefixItems" in field:
        return f"[{', '.join(map(_kind, field['prefixItems']))}]"
    if "items" in field:
        kind = _kind(field["items"])
        return f"list of {kind}" if "`" in kind else f"list of {kind}s"
    if field["type"] == "object":
        (values,) = field.get("patternProperties", {"": field.get("additionalProperties")}).values()
        return f"mapping of names to {_kind(values)}s"
    bounds = [
        f"{text} {field[name]:g}"
        for name, text in BOUNDS.items()
        if field.get(name, LARGEST) != LARGEST
    ]
    patterns = [f"`{field['pattern']}`"] if "pattern" in field else []
    return " ".join(filter(None, (NAMES[field["type"]], ", ".join(bounds + patterns))))


def _default(field: Schema) -> str:
    if "default" not in field:
        return ""
    value = field["default"]
    if "$ref" in field or (isinstance(value, dict) and "type" in value):
        return f"`{value['type']}`" if "type" in value else ""
    if isinstance(value, list):
        shown = [each["type"] if isinstance(each, dict) else each for each in value]
        return f"`[{', '.join(map(str, shown))}]`"
    return f"`{json.dumps(value) if not isinstance(value, str) or not value else value}`"


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return "".join(f"| {line} |\n" for line in cells)


def with_tables(page: Path, tables: str) -> str:
    """The page with these tables behind the marker."""
    return f"{page.read_text(encoding='utf-8').partition(MARKER)[0]}{MARKER}\n{tables}"


def main() -> None:
    """Write both pages."""
    for name, tables in (("config.md", config_reference()), ("recipes.md", recipe_reference())):
        (DOCS / name).write_text(with_tables(DOCS / name, tables), encoding="utf-8")


if __name__ == "__main__":
    main()
