"""Write docs/config.md from the recipe models and docs/recipes.md from the recipes.

Run it after changing either: `python scripts/write_config_reference.py`.
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

from nmtdeep.config import Recipe
from nmtdeep.config.load import list_recipes, load_recipe
from nmtdeep.config.section import LARGEST, Section, tag_of, variants

DOCS = Path(__file__).parent.parent / "docs"
NAMES = {int: "whole number", float: "number", str: "text", bool: "true or false"}
BOUNDS = {"gt": "> {}", "ge": "≥ {}", "lt": "< {}", "le": "≤ {}"}

CONFIG_HEAD = """\
<!-- Written by scripts/write_config_reference.py; do not edit. -->
# Every key of a recipe

A recipe is a YAML file of these sections; what it does not say has the default given here.
[recipes.md](recipes.md) explains how recipes extend one another and how values are overridden.

Where a key has types, `key: type` chooses one without fields of its own, and
`key: {type: ..., field: ...}` one with fields. A type has only its own fields.

No whole number is larger than 1,000,000,000,000,000, and every number is finite.
"""

RECIPES_HEAD = """\
<!-- Written by scripts/write_config_reference.py; do not edit. -->
# Recipes

A recipe is a whole experiment in one YAML file: text, model, training, decoding, and where it comes
from. [config.md](config.md) lists every key. Commands take a recipe by name, or a file whose name
ends in `.yaml`:

```bash
nmtdeep recipes list
nmtdeep recipes show multi30k-en-de
```

`show` prints every value with its origin: the line of the file that says it, `override`, or
`default`. What it prints is itself a recipe that loads back equal; `--plain` leaves the origins
out.

## Overrides

Any command that takes a recipe takes `key.path=value` behind it. The value is YAML: a number, a
word, a list, or a mapping in braces.

```bash
nmtdeep recipes show multi30k-en-de training.max_updates=100 model.encoder.residual=pre_norm
nmtdeep recipes show multi30k-en-de "training.schedule={type: noam, warmup_updates: 500}"
```

## A recipe of your own

`extends` names one other recipe, by name or by a path relative to the file; your file then holds
only what differs. The parent may extend another in turn.

```yaml
# mine.yaml
extends: multi30k-en-de
description: Multi30k with twelve encoder layers, pre-norm
model:
  encoder: {depth: 12, residual: pre_norm}
  decoder: {residual: pre_norm}
```

- Mappings merge, key by key; lists and single values are replaced.
- A section whose `type` changes is replaced whole: its new fields start from their defaults.
- `description` and `reference` speak of one recipe and are not inherited.
- A key that a recipe may not have is an error with its line and the nearest spelling; all problems
  of a file are reported at once.
- Numbers may be written `1e-4` and `100_000`; `yes`, `no`, `on` and `off` are words. Anchors may
  stand there, aliases may not.

## General recipes by size of data

Three recipes name no language and no paper's data. Take the one for the size of your text:

- `deep-small`, 10,000 to 300,000 pairs, a laptop's CPU or one GPU. Model and training are those of
  `multi30k-en-de-deep`, with dropout 0.2 instead of 0.3 and text that keeps its case. Measured by
  us, on Multi30k English-German, 29,000 pairs:
  [results.md](results.md#the-general-recipe-for-small-corpora).
- `deep-base`, 1 to 5 million pairs, one GPU or several. Model and training are those of Wang et al.
  2019, Table 1, row "pre-norm deep Transformer, 20 layers". Measured by the paper, on WMT16
  English-German, 4.5 million pairs, 8 GPUs: 28.9 BLEU, where Transformer-Base has 27.1. Not
  measured by us.
- `deep-large`, 10 million pairs and more, several GPUs. Model and training are those of Li et al.
  2020, Table 1, row "SDT-RPR-48L", En-Fr. Measured by the paper, on WMT14 English-French, 36
  million pairs, 8 GPUs: 43.29 BLEU, where Base has 41.00 and Big 42.40. Not measured by us.

Nothing was measured between 300,000 and 1 million pairs, nor between 5 and 10 million. The papers'
scores are those of their own preparation of the text; these recipes read raw text. CTranslate2
cannot hold the model of `deep-large`, because its blocks are connected; it can hold the other two.
[quick-start.md](quick-start.md#choose-a-recipe) shows the commands, also for other languages.

## Published experiments

Scores are named by test set and by the metric of `nmtdeep score` that is nearest to the paper's.
They are the papers' numbers, not ours; a folder's README says what we measured.
"""


def config_reference() -> str:
    """The text of docs/config.md."""
    seen: dict[tuple[type[Section], ...], str] = {}
    parts = [CONFIG_HEAD, _table(Recipe)]
    for name, field in Recipe.model_fields.items():
        parts += _sections(name, field, seen)
    return "\n".join(parts)


def recipe_reference() -> str:
    """The text of docs/recipes.md."""
    parts = [RECIPES_HEAD]
    entries = list_recipes()
    for folder, members in groupby(entries, key=lambda entry: entry.name.rpartition("/")[0]):
        rows = [_recipe_row(entry.name, entry.description) for entry in members]
        parts.append(f"### {folder}\n" if folder else "### On their own\n")
        parts.append(_markdown(("recipe", "what", "parameters", "published scores"), rows))
    return "\n".join(parts)


def _sections(
    path: str, field: FieldInfo, seen: dict[tuple[type[Section], ...], str]
) -> Iterator[str]:
    """The section at `path` and those inside it; a set of variants is told once."""
    options = variants(field.annotation)
    if not options:
        return
    tagged = tag_of(options[0]) is not None
    yield f"## `{path}`\n"
    if options in seen:
        yield f"As [`{seen[options]}`](#{_anchor(seen[options])}).\n"
        return
    seen[options] = path
    for section in options:
        yield from _section(section, tagged)
    for section in options:
        for name, inner in section.model_fields.items():
            yield from _sections(f"{path}.{name}", inner, seen)


def _section(section: type[Section], tagged: bool) -> Iterator[str]:
    title = f"**`{tag_of(section)}`**: " if tagged else ""
    yield f"{title}{' '.join((section.__doc__ or '').split())}\n"
    if set(section.model_fields) - {"type"}:
        yield _table(section)


def _table(section: type[Section]) -> str:
    rows = [
        (f"`{name}`", _kind(field), _default(field), _meaning(field))
        for name, field in section.model_fields.items()
        if name != "type"
    ]
    return _markdown(("key", "value", "default", "meaning"), rows)


def _meaning(field: FieldInfo) -> str:
    if field.description:
        return field.description.replace("<", "&lt;")
    options = variants(field.annotation)
    return " ".join((options[0].__doc__ or "").split()) if options else ""


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
        other = next(part for part in arguments if part is not NoneType)
        return f"{_plain_kind(other, metadata)}, or null"
    if origin is Union:
        return ", or ".join(_plain_kind(part) for part in arguments)
    return f"{NAMES[annotation]}{_bounds(metadata)}"


def _bounds(metadata: Any) -> str:
    found = [
        text.format(_number(getattr(part, name)))
        for part in metadata
        for name, text in BOUNDS.items()
        if getattr(part, name, None) not in (None, LARGEST)
    ]
    patterns = [part.pattern for part in metadata if getattr(part, "pattern", None)]
    return " " * bool(found or patterns) + ", ".join([*found, *(f"`{each}`" for each in patterns)])


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


def _number(value: float) -> str:
    return f"{value:g}"


def _recipe_row(name: str, description: str) -> tuple[str, ...]:
    reference = load_recipe(name).reference
    scores = "; ".join(f"{key} {score:g}" for key, score in reference.scores.items())
    return (f"`{name}`", description, reference.parameters, scores)


def _markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return "".join(f"| {line} |\n" for line in cells)


def _anchor(path: str) -> str:
    return path.replace(".", "")


def main() -> None:
    """Write both files."""
    DOCS.mkdir(exist_ok=True)
    (DOCS / "config.md").write_text(config_reference(), encoding="utf-8")
    (DOCS / "recipes.md").write_text(recipe_reference(), encoding="utf-8")


if __name__ == "__main__":
    main()
