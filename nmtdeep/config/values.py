"""Problems of single values, in recipes and in options."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import ValidationError

from nmtdeep.config.section import EPOCHS, LANGUAGE, NAME, TAG, ConflictError, Section
from nmtdeep.config.variant import choices_of
from nmtdeep.errors import Problem, UserError

# The allowed values by pydantic's type of error; in braces, fields of its context.
_ALLOWED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "a mapping of names to values",
    "model_type": "a section",
    "model_attributes_type": "a section",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_long": "a list of at most {max_length}",
}
_BELOW = "indent its keys on the lines below it, or write KEY=VALUE for one of them"
_HINTS = {
    "tuple_type": "write [a, b]",
    "string_type": "put it in quotes",
    "model_type": _BELOW,
    "model_attributes_type": _BELOW,
}
# What has each pattern, and how it is written.
_PATTERNS = {
    LANGUAGE: ("a language tag", "write it as in de, pt-BR or zh-Hant"),
    NAME: ("the name of a corpus", "write letters, digits, '.', '_' and '-' only"),
    EPOCHS: ("a number of updates or epochs", "write it as in 1000, 1 epoch or 2 epochs"),
    TAG: ("a tag", "write it as in <bt>, without spaces"),
}
_OF_CHOICES = (
    *("literal_error", "union_tag_invalid", "union_tag_not_found"),
    *("value_error", "model_type", "model_attributes_type"),
)

Checked = TypeVar("Checked", bound=Section)


def checked(
    model: type[Checked], given: Mapping[str, Any], spelled: Callable[[str], str] = str
) -> Checked:
    """A model of options, with the defaults of those that are omitted.

    Args:
        given: values by name; None means that an option was omitted.
        spelled: the name of an option as the user writes it.

    Raises:
        UserError: with a problem for each option that is unknown or has no such value.
    """

    def problem(detail: Any) -> Problem:
        name = str(detail["loc"][0])
        if name not in model.model_fields:
            hint = near(spelled(name), [spelled(field) for field in model.model_fields])
            return Problem("unknown option", where=spelled(name), hint=hint)
        value = value_problem(detail, choices_of(model.model_fields[name].annotation))
        return Problem(value.what, where=spelled(name), hint=value.hint)

    try:
        return model(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise UserError(problems=map(problem, details)) from None


def value_problem(detail: Any, choices: Sequence[str] = ()) -> Problem:
    """The problem of one value, such as `must be a whole number, not 'four'`.

    Args:
        detail: one of `ValidationError.errors()`.
        choices: all allowed values, if there are few.
    """
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    hint = _HINTS.get(kind, "")
    if isinstance(conflict := context.get("error"), ConflictError):
        return Problem(conflict.what, "", conflict.hint)
    if choices and kind in _OF_CHOICES:
        value = value.get("type") if isinstance(value, dict) else value
        listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
        hint = near(value, choices)
        if isinstance(value, list):
            in_stack = {"encoder", "decoder"} & {*detail["loc"]}
            hint = "choose one kind for the whole stack" if in_stack else "choose one"
        return Problem(f"must be {listed}, not {shown(value)}", "", hint)
    if kind == "missing":
        return Problem("is missing", "", "write a value")
    if kind == "value_error":
        return Problem(f"{context['error']}, not {shown(value)}")
    if kind == "string_pattern_mismatch":
        what, hint = _PATTERNS[context["pattern"]]
        return Problem(f"must be {what}, not {shown(value)}", "", hint)
    if kind not in _ALLOWED:
        return Problem(f"{detail['msg']}, not {shown(value)}")
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        hint = f"write {int(value)}"
    return Problem(f"must be {_ALLOWED[kind].format_map(context)}, not {shown(value)}", "", hint)


def near(word: Any, words: Sequence[str]) -> str:
    """A question about the most similar of these words; empty if none is similar."""
    similar = get_close_matches(str(word), words, n=1)
    return f"did you mean {similar[0]}?" if similar else ""


def shown(value: Any) -> str:
    """A value in a message; null and booleans as in YAML."""
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."
