"""Problems of single values, in recipes and in options."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from nmtdeep.config.section import EPOCHS, KIWI, LANGUAGE, MBR, NAME, TAG, ConflictError, Section
from nmtdeep.config.spelling import did_you_mean
from nmtdeep.errors import Problem, UserError

_BELOW = "indent its keys on the lines below it, or write KEY=VALUE for one of them"
# What is allowed, and how it is written: by the pattern of a text, or by pydantic's kind of error
# without its last word; in braces, fields of the error's context.
_ALLOWED = {
    LANGUAGE: ("a language tag", "write it as in de, pt-BR or zh-Hant"),
    NAME: ("the name of a corpus", "write letters, digits, '.', '_' and '-' only"),
    EPOCHS: ("a number of updates or epochs", "write it as in 1000, 1 epoch or 2 epochs"),
    TAG: ("a tag", "write it as in <bt>, without spaces"),
    MBR: ("chrf or comet:MODEL", "MODEL is the folder or name of a COMET model"),
    KIWI: ("comet-kiwi:MODEL", "MODEL is the folder or name of a COMET model"),
    "int": ("a whole number", ""),
    "float": ("a number", ""),
    "finite_number": ("a finite number", ""),
    "bool": ("true or false", ""),
    "string": ("text", "put it in quotes"),
    "tuple": ("a list", "write [a, b]"),
    "dict": ("a mapping of names to values", ""),
    "model": ("a section", _BELOW),
    "greater_than": ("more than {gt}", ""),
    "greater_than_equal": ("at least {ge}", ""),
    "less_than": ("less than {lt}", ""),
    "less_than_equal": ("at most {le}", ""),
    "too_long": ("a list of at most {max_length}", ""),
    "too_short": ("a list of at least {min_length}", ""),
}

Checked = TypeVar("Checked", bound=Section)


def validated(
    model: type[Checked], given: Mapping[str, Any], spelled: Callable[[str], str] = str
) -> Checked:
    """A model of options from values by name; None means that an option was omitted.

    Raises:
        UserError: with a problem for each option that is unknown or has no such value, `spelled` as
            the user writes it.
    """

    def problem(detail: Any) -> Problem:
        name = str(detail["loc"][0])
        if name not in model.model_fields:
            hint = did_you_mean(spelled(name), [spelled(field) for field in model.model_fields])
            return Problem("unknown option", where=spelled(name), hint=hint)
        value = value_problem(detail)
        return Problem(value.what, where=spelled(name), hint=value.hint)

    try:
        return model(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise UserError(problems=map(problem, details)) from None


def value_problem(detail: Any) -> Problem:
    """The problem in one of `ValidationError.errors()`: `must be a whole number, not 'four'`."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if isinstance(conflict := context.get("error"), ConflictError):
        return Problem(conflict.what, "", conflict.hint)
    if kind == "missing":
        return Problem("is missing", "", "write a value")
    if kind == "literal_error":
        value = value.get("type") if isinstance(value, dict) else value
        allowed, hint = context["expected"].replace("'", ""), ""
        if isinstance(value, list):
            in_stack = {"encoder", "decoder"} & {*detail["loc"]}
            hint = "choose one kind for the whole stack" if in_stack else "choose one"
        hint = hint or did_you_mean(value, re.split(", | or ", allowed))
    elif entry := _ALLOWED.get(context.get("pattern", re.sub(r"_(type|parsing)$", "", kind))):
        allowed, hint = entry
    else:
        return Problem(f"{detail['msg']}, not {quoted(value)}")
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        hint = f"write {int(value)}"
    return Problem(f"must be {allowed.format_map(context)}, not {quoted(value)}", "", hint)


def listed(choices: Iterable[str]) -> str:
    """`a, b or c`."""
    return " or ".join(", ".join(choices).rsplit(", ", 1))


def quoted(value: Any) -> str:
    """A value in a message; null and booleans as in YAML."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."
