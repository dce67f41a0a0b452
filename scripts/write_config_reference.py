"""Write the tables of docs/config.md (all keys) and docs/recipes.md (all recipes).

Run it after changing either: `python scripts/write_config_reference.py`. It replaces what follows
the marker in each page.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from nmtdeep.config.load import load_recipe
from nmtdeep.config.names import list_recipes
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.section import LARGEST, Section
from nmtdeep.config.variant import tag_of, variants

DOCS = Path(__file__).parent.parent / "docs"
NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false"}
BOUNDS = {"gt": "> {}", "ge": "≥ {}", "lt": "< {}", "le": "≤ {}"}

MARKER = "<!-- What follows is written by scripts/write_config_reference.py; do not edit it. -->\n"


def config_reference() -> str:
    """The tables of docs/config.md."""
    seen: dict[tuple[type[Section], ...], str] = {}
    parts = [_table(Recipe)]
    for name, field in Recipe.model_fields.items():
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


def _sections(
    path: str, field: FieldInfo, seen: dict[tuple[type[Section], ...], str]
) -> Iterator[str]:
    """The section at `path` and those inside it; a set of variants is described once."""
    options = variants(field.annotation)
    if not options:
        return
    yield f"## `{path}`\n"
    if options in seen:
        yield f"As [`{seen[options]}`](#{seen[options].replace('.', '')}).\n"
        return
    seen[options] = path
    if tag_of(options[0]) is None:
        yield f"{_text(options[0])}\n"
        yield _table(options[0])
    else:
        rows = [row for section in options for row in (_variant(section), *_fields(section))]
        yield _markdown(("type, or its key", "value", "default", "meaning"), rows)
    for section in options:
        for name, inner in section.model_fields.items():
            yield from _sections(f"{path}.{name}", inner, seen)


def _variant(section: type[Section]) -> tuple[str, ...]:
    return (f"**`{tag_of(section)}`**", "", "", _text(section))


def _text(section: type[Section]) -> str:
    return " ".join((section.__doc__ or "").split())


def _table(section: type[Section]) -> str:
    return _markdown(("key", "value", "default", "meaning"), _fields(section))


def _fields(section: type[Section]) -> list[tuple[str, ...]]:
    return [
        (f"`{name}`", _kind(field), _default(field), _meaning(field))
        for name, field in section.model_fields.items()
        if name != "type"
    ]


def _meaning(field: FieldInfo) -> str:
    if field.description:
        return field.description.replace("<", "&lt;")
    options = variants(field.annotation)
    return _text(options[0]) if options else ""


def _kind(field: FieldInfo) -> str:
    options = variants(field.annotation)
    tags = [f"`{tag}`" for section in options if (tag := tag_of(section))]
    if tags:
        several = get_origin(field.annotation) is tuple
        return f"{'list of ' if several else ''}{', '.join(tags)}"
    if options:
        return "list of sections" if get_origin(field.annotation) is tuple else "section"
    return _plain_kind(field.annotation, field.metadata)


def _plain_kind(annotation: Any, metadata: Any = ()) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        inner = [part for each in arguments[1:] for part in getattr(each, "metadata", [each])]
        return _plain_kind(arguments[0], [*inner, *metadata])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple and Ellipsis in arguments:
        return f"list of {_plain_kind(arguments[0])}s"
    if origin is tuple:
        return f"[{', '.join(_plain_kind(part) for part in arguments)}]"
    if origin is dict:
        return f"mapping of names to {_plain_kind(arguments[1])}s"
    if NoneType in arguments:
        inner_type = next(part for part in arguments if part is not NoneType)
        return f"{_plain_kind(inner_type, metadata)}, or null"
    if origin is Union:
        ours = (part for part in arguments if not isinstance(part, type) or part in NAMES)
        return ", or ".join(map(_plain_kind, ours))
    return f"{NAMES[annotation]}{_bounds(metadata)}"


def _bounds(metadata: Any) -> str:
    bounds = [
        text.format(f"{getattr(part, name):g}")
        for part in metadata
        for name, text in BOUNDS.items()
        if getattr(part, name, None) not in (None, LARGEST)
    ]
    patterns = [part.pattern for part in metadata if getattr(part, "pattern", None)]
    return " " * bool(bounds or patterns) + ", ".join(
        [*bounds, *(f"`{each}`" for each in patterns)]
    )


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return ""
    if isinstance(value, Section):
        tag = tag_of(type(value))
        return f"`{tag}`" if tag else ""
    if isinstance(value, tuple):
        shown = [tag_of(type(each)) if isinstance(each, Section) else each for each in value]
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
