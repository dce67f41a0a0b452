"""What is wrong with a command line, in one line that ends with the hint."""

from __future__ import annotations

import re
from typing import Any

import typer
from pydantic import ValidationError

from nmtdeep.cli.command import choices, option_name, value_name
from nmtdeep.config.problems import value_problem


def usage_line(error: typer.TyperException) -> str:
    """The words for what typer refused.

    typer hands out only the base class of its errors, so that the kind is told by its name.
    """
    found: Any = error
    match type(error).__name__:
        case "NoSuchOption":
            words = f"there is no option {found.option_name}"
            if found.possibilities:
                return f"{words}: did you mean {' or '.join(sorted(found.possibilities))}?"
        case "BadOptionUsage":
            number = re.search(r"requires (\d+)", found.message)
            values = f"needs {number[1]} values" if number else "needs a value"
            takes_none = "does not take" in found.message
            words = f"{found.option_name} {'takes no value' if takes_none else values}"
        case "MissingParameter":
            return _missing(found.param, found.ctx)
        case "BadParameter":
            words = f"{_name(found.param, found.ctx)} {_wrong(found)}"
            return (
                words if isinstance(found.__cause__, ValidationError) else f"{words}{_see(found)}"
            )
        case _:
            message = error.format_message().rstrip(".").removeprefix("Got ")
            message = message.replace("argument(s)", "argument")
            words = f"{message[:1].lower()}{message[1:]}".replace(". Did you", ": did you")
            if words.endswith("?"):
                return words
    return f"{words}{_see(found)}"


def _see(error: Any) -> str:
    return f": see `{error.ctx.command_path} --help`" if getattr(error, "ctx", None) else ""


def _name(parameter: Any, ctx: Any) -> str:
    """`--beam`, or `RUN` for an argument."""
    if parameter.param_type_name == "argument":
        return value_name(parameter, ctx)
    return option_name(parameter)


def _missing(parameter: Any, ctx: Any) -> str:
    name = _name(parameter, ctx)
    words = choices(parameter, ctx)
    meaning = ", ".join(words) or str(parameter.help or "").rstrip(".")
    typed = name if name == value_name(parameter, ctx) else f"{name} {value_name(parameter, ctx)}"
    return f"{name} is missing: give {typed} ({meaning}); see `{ctx.command_path} --help`"


def _wrong(error: Any) -> str:
    if isinstance(error.__cause__, ValidationError):
        detail = error.__cause__.errors(include_url=False)[0]
        return str(value_problem(detail, choices(error.param, error.ctx)))
    return str(error.message)
