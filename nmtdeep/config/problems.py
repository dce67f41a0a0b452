"""What pydantic found wrong, said in the words of the recipe: line, key, and the hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from nmtdeep import errors
from nmtdeep.config.structure import (
    choices_at,
    every_key,
    section_at,
    tag_of,
    without_tags,
)
from nmtdeep.config.yaml_source import KeyPath, Origin, Problem, Source, dotted
from nmtdeep.errors import ConfigError

# Each takes about a millisecond to explain, and nobody reads on.
MOST = 100
_KINDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list: write [a, b]",
    "dict_type": "a mapping of names to values",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}


def config_error(problems: Sequence[Problem]) -> ConfigError:
    """All problems as one error, in the order of the lines; overrides come last."""

    def place(problem: Problem) -> tuple[bool, str, int]:
        return problem.origin.is_override, problem.origin.place, problem.origin.line or 0

    lines = dict.fromkeys(map(str, sorted(problems, key=place)))
    return ConfigError(problems=map(errors.Problem, lines))


def explain(error: ValidationError, source: Source, label: str) -> list[Problem]:
    """One problem for each thing pydantic refused."""
    details = error.errors(include_url=False)
    found = []
    for detail in details[:MOST]:
        path = without_tags(detail["loc"], source.values)
        if detail["type"] == "too_short" and any(
            other["loc"][: len(detail["loc"])] == detail["loc"] and other is not detail
            for other in details
        ):
            continue  # pydantic counts the items of a list that are right
        what = _say(detail, path, source.values)
        if path and path[-1] == "type" and detail["type"] == "literal_error":
            path = path[:-1]
        origin = _locate(path, what, source.origins) or Origin(label)
        found.append(Problem(origin, f"{dotted(path)}: {what}" if path else what))
    if len(details) > MOST:
        found.append(Problem(Origin(label), f"and more ({len(details) - MOST}): mend these first"))
    return found


def did_you_mean(word: str, words: Sequence[str]) -> str:
    """` (did you mean depth?)`, or nothing where nothing is near."""
    near = get_close_matches(word, words, n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def in_words(detail: Any) -> str:
    """What is wrong with one value, such as `must be a whole number, not 'four'`.

    Args:
        detail: one of `ValidationError.errors()`, of a value that is no recipe's.
    """
    kind, message, given = detail["type"], str(detail["msg"]), detail["input"]
    if kind == "literal_error" or "is not one of" in message:
        allowed = message.partition("is not one of")[2] or detail["ctx"]["expected"]
        words = re.findall(r"'([^']*)'", allowed)
        near = did_you_mean(given, words) if isinstance(given, str) else ""
        return f"must be {_listed(words)}, not {_shown(given)}{near}"
    if kind == "value_error":
        return f"{message.removeprefix('Value error, ')}, not {_shown(given)}"
    if isinstance(given, str) and kind in _BOUNDS:
        return f"must be {_BOUNDS[kind].format_map(detail['ctx'])}, not {given}"
    return _wrong_value(detail, detail.get("ctx", {}), given)


def _say(detail: Any, path: KeyPath, values: Any) -> str:
    kind, context, given = detail["type"], detail.get("ctx", {}), detail["input"]
    match kind:
        case "extra_forbidden":
            what = _unknown_key(path, values)
        case "union_tag_invalid" | "union_tag_not_found" | "literal_error":
            what = _wrong_choice(kind, context, given, path, values)
        case "model_type" | "model_attributes_type":
            what = f"must be a section, not {_shown(given)}: put its keys on the lines below it"
        case "value_error":
            what = str(detail["msg"]).removeprefix("Value error, ")
        case "string_pattern_mismatch":
            what = f"must have the form {context['pattern'].strip('^$')}, not {_shown(given)}"
        case "missing":
            what = "is missing: write a value"
        case _:
            what = _wrong_value(detail, context, given)
    return what


def _wrong_value(detail: Any, context: Any, given: Any) -> str:
    kind = detail["type"]
    if kind in _BOUNDS:
        return f"must be {_BOUNDS[kind].format_map(context)}, not {_shown(given)}"
    if kind not in _KINDS:
        return f"{detail['msg']}, not {_shown(given)}"
    hint = ""
    if kind == "string_type":
        hint = ": put it in quotes"
    elif isinstance(given, float) and given.is_integer() and kind.startswith("int"):
        hint = f": write {int(given)}"
    return f"must be {_KINDS[kind]}, not {_shown(given)}{hint}"


def _unknown_key(path: KeyPath, values: Any) -> str:
    key, above = str(path[-1]), tuple(part for part in path[:-1] if isinstance(part, str))
    if key == "extends":
        return "only a recipe file can extend another, on its top level: delete this"
    section = section_at(path[:-1], values)
    siblings = [name for name in section.model_fields if name != "type"] if section else []
    everywhere = every_key()
    owners = [each.tag for each in everywhere if each.path == (*above, key) and each.tag]
    if owners and section is not None:
        return f"unknown key of type {tag_of(section)} (it belongs to type {' and '.join(owners)})"
    elsewhere = _places(key, above)
    near = did_you_mean(key, siblings)
    if elsewhere or near:
        return f"unknown key{elsewhere or near}"
    similar = get_close_matches(key, [each.path[-1] for each in everywhere], n=1, cutoff=0.8)
    if similar:
        return f"unknown key{_places(similar[0], above)}"
    return (
        f"unknown key: choose from {', '.join(siblings)}" if siblings else "unknown key: delete it"
    )


def _places(key: str, above: tuple[str, ...]) -> str:
    """Where a key of this name may stand, those of the same top section first."""
    found = [each for each in every_key() if each.path[-1] == key]
    found = [each for each in found if each.path[:1] == above[:1]] or found
    places = list(dict.fromkeys(map(str, found)))[:3]
    return f" (did you mean {' or '.join(places)}?)" if places else ""


def _wrong_choice(kind: str, context: Any, given: Any, path: KeyPath, values: Any) -> str:
    slot = path[:-1] if path and path[-1] == "type" else path
    tags = choices_at(slot, values)
    if kind == "literal_error" and slot == path:
        tags = tuple(re.findall(r"'([^']*)'", context["expected"]))
    allowed = f"choose {_listed(tags)}"
    if kind == "union_tag_not_found":
        return f"has no type: {allowed}"
    given = given.get("type") if isinstance(given, dict) else given
    near = did_you_mean(given, tags) if isinstance(given, str) else ""
    noun = "choice" if slot == path and kind == "literal_error" else "type"
    return f"{_shown(given)} is no {noun} here{near}: {allowed}"


def _listed(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a section"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."


def _locate(path: KeyPath, message: str, origins: Mapping[KeyPath, Origin]) -> Origin | None:
    """The line of `path`, of what the message names below it, or the nearest one above."""
    below = {key[len(path) :]: origin for key, origin in origins.items() if _under(key, path)}
    named = [key for key in below if key and _names(message, dotted(key))]
    if named:
        best = max(named, key=lambda key: (below[key].is_override, len(key)))
        return below[best]
    if path in origins:
        return origins[path]
    if below:
        return next(iter(below.values()))
    return _locate(path[:-1], message, origins) if path else None


def _under(key: KeyPath, path: KeyPath) -> bool:
    return key[: len(path)] == path


def _names(message: str, key: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(key)}(?![\w])", message) is not None
