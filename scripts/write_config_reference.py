"""Write the lists of docs/config.md (all keys) and docs/recipes.md (all recipes).

Run it after changing either: `python scripts/write_config_reference.py`. It replaces what follows
the marker in each page.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmtdeep.config.names import list_recipes
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import LARGEST

DOCS = Path(__file__).parent.parent / "docs"
RECIPES = DOCS.parent / "recipes"
Schema = dict[str, Any]
Places = dict[tuple[str, ...], str]
SCHEMA = Recipe.model_json_schema()
NAMES = {"integer": "whole number", "number": "number", "string": "text"}
NAMES |= {"boolean": "true or false", "null": "null"}
BOUNDS = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}

MARKER = "<!-- What follows is written by scripts/write_config_reference.py; do not edit it. -->\n"


def config_reference() -> str:
    """The lists of docs/config.md."""
    places = _places("", SCHEMA, {})
    parts = ["".join(_fields(SCHEMA, "", places))]
    for name, field in SCHEMA["properties"].items():
        parts += _sections(name, field, places)
    return "\n".join(parts)


def _places(path: str, section: Schema, places: Places) -> Places:
    """Where each section, or set of variants, is described: at the first key that has it."""
    for name, field in section["properties"].items():
        names, inner = tuple(_references(field)), f"{path}.{name}".strip(".")
        if names and names not in places:
            places[names] = inner
            for each in names:
                _places(inner, SCHEMA["$defs"][each], places)
    return places


def recipe_reference() -> str:
    """The tables of docs/recipes.md: a row per recipe on its own, and per folder of a paper."""
    recipes = list_recipes()
    alone = [(f"`{name}`", text) for name, text in recipes.items() if "/" not in name]
    folders = [name.partition("/")[0] for name in recipes if "/" in name]
    papers = [
        (f"[{folder}](../recipes/{folder})", str(count), _title(folder))
        for folder, count in Counter(folders).items()
    ]
    heads = ("recipe", "what"), ("folder", "recipes", "paper")
    return "\n".join((_markdown(heads[0], alone), _markdown(heads[1], papers)))


def _title(folder: str) -> str:
    return (RECIPES / folder / "README.md").read_text(encoding="utf-8").splitlines()[0][2:]


def _sections(path: str, field: Schema, places: Places) -> Iterator[str]:
    """The section at `path` and those inside it."""
    names = tuple(_references(field))
    if not names or places[names] != path:
        return
    sections = [SCHEMA["$defs"][name] for name in names]
    yield f"## `{path}`\n"
    if "type" in sections[0]["properties"]:
        yield "".join(_variants(sections, path, places))
    else:
        yield f"{_text(sections[0])}\n"
        yield "".join(_fields(sections[0], path, places))
    for section in sections:
        for name, inner in section["properties"].items():
            yield from _sections(f"{path}.{name}", inner, places)


def _variants(sections: list[Schema], path: str, places: Places) -> Iterator[str]:
    """A line for each type and key; keys that an earlier type has as well are only named."""
    seen: dict[str, str] = {}
    for section in sections:
        tag = section["properties"]["type"]["const"]
        yield f"- **`{tag}`** {_text(section)}\n"
        lines = _fields(section, path, places)
        names = [name for name in section["properties"] if name != "type"]
        same = [name for name, line in zip(names, lines, strict=True) if line in seen]
        yield from (f"  {line}" for line in lines if line not in seen)
        if same:
            as_type = seen[next(line for line in lines if line in seen)]
            yield f"  - as `{as_type}`: {', '.join(f'`{name}`' for name in same)}\n"
        seen |= {line: tag for line in lines if line not in seen}


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


def _text(section: Schema) -> str:
    return " ".join(section["description"].split())


def _fields(section: Schema, path: str, places: Places) -> list[str]:
    return [
        f"- `{name}` {_value(field)}{_meaning(field, f'{path}.{name}'.strip('.'), places)}\n"
        for name, field in section["properties"].items()
        if name != "type"
    ]


def _value(field: Schema) -> str:
    """What a key can be, the default first: `10000` (> 0)."""
    default, kind = _default(field), _kind(field)
    if kind in ("section", "list of sections"):
        return ""
    choices = kind.split(", ")
    if default in choices:
        return ", ".join([default, *(each for each in choices if each != default)]) + ": "
    plain = kind.removeprefix("whole number").removeprefix("number").removesuffix(", or null")
    plain = "" if plain in ("true or false", "text") else plain.strip()
    return f"{default}{f' ({plain})' if plain else ''}: "


def _meaning(field: Schema, path: str, places: Places) -> str:
    place = places.get(tuple(_references(field)), path)
    if place != path:
        return f"as [`{place}`](#{place.replace('.', '')})"
    if "description" in field:
        return field["description"].replace("<", "&lt;")
    return f"[section](#{path.replace('.', '')})"


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
