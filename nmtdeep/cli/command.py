"""How every command reads its options, shows its help and reports a wrong command line."""

from __future__ import annotations

import functools
import inspect
import platform
import signal
import textwrap
import traceback
from collections import Counter
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from nmtdeep import __version__
from nmtdeep.cli.options import option, replace_options
from nmtdeep.errors import UserError

PACKAGES = ("torch", "numpy", "safetensors", "sacremoses", "subword-nmt", "sacrebleu")
# What typer takes for the default of an argument that must be given.
REQUIRED = (..., inspect.Parameter.empty)
VERBOSE = option(
    "verbose",
    Annotated[
        bool, typer.Option("-v", "--verbose", help="Print versions, and a traceback with an error.")
    ],
    default=False,
)
# The name of a value in the help, by its type; a name from a list is NAME.
VALUES: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH"}
NAMES_WIDTH = 28
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class PlainHelp:
    """Help of a command or a group: titled sections of two columns, then an example.

    Rich's panels cut names at 80 columns; here names are never cut or broken. `epilog` is the
    example, one command line that works.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options, options under headings of their own, and commands."""
        command: Any = self
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in command.get_params(ctx):
            if not parameter.hidden:
                is_argument = parameter.param_type_name == "argument"
                heading = parameter.rich_help_panel or ("Arguments" if is_argument else "Options")
                sections.setdefault(heading, []).append(_row(parameter, ctx))
        for name, below in getattr(command, "commands", {}).items():
            text = " ".join((below.help or "").split("\n\n")[0].split())
            sections.setdefault(below.rich_help_panel or "Commands", []).append((name, text))
        for heading, rows in sorted(sections.items(), key=lambda item: item[0] == "Machine"):
            _write_section(heading, rows, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The example."""
        command: Any = self
        formatter.write(f"\nExample:\n  {command.epilog}\n")


class Command(PlainHelp, TyperCommand):
    """A command that takes each option once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer, but an option that takes one value may be given only once.

        Raises:
            UserError: if one is given again, also under another of its names.
        """
        try:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        except typer.TyperException as error:
            error.ctx = ctx  # type: ignore[attr-defined]  # which some kinds leave out
            raise
        rest = super().parse_args(ctx, args)
        for parameter, count in Counter(given).items():
            if count > 1 and not parameter.multiple and not ctx.resilient_parsing:
                names = [*parameter.opts, *parameter.secondary_opts]
                alias = f" ({', '.join(names)} are one option)" if len(names) > 1 else ""
                times = "twice" if count == 2 else f"{count} times"
                raise UserError(
                    f"is given {times}{alias}", where=_name(parameter), hint="give it once"
                )
        return rest

    def invoke(self, ctx: Any) -> Any:
        """As typer, but Ctrl-C prints a line, unless the command is quiet."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if not ctx.params.get("quiet"):
                typer.echo(f"{ctx.command_path}: interrupted by Ctrl-C", err=True)
            raise typer.Exit(128 + signal.SIGINT) from None


class Group(PlainHelp, TyperGroup):
    """Commands under one name."""


def add_command(
    app: typer.Typer, function: Callable[..., None], example: str, panel: str | None = None
) -> None:
    """Make a function a command of `app`, with the option --verbose.

    Args:
        example: a command line that works.
        panel: the heading of the command in the help of `app`.
    """

    @functools.wraps(function)
    def command(*, verbose: bool, **values: Any) -> None:
        if verbose:
            typer.echo(", ".join(map(" ".join, versions().items())), err=True)
        try:
            function(**values)
        except UserError:
            if verbose:
                traceback.print_exc()
            raise

    replace_options(command, function, add=[VERBOSE])
    defaults = [each.default for each in inspect.signature(function).parameters.values()]
    app.command(
        function.__name__.strip("_").replace("_", "-"),
        cls=Command,
        epilog=example,
        no_args_is_help=any(getattr(each, "default", each) in REQUIRED for each in defaults),
        rich_help_panel=panel,
    )(command)


def versions() -> dict[str, str]:
    """The packages that a report of a fault should name, with their versions."""
    found = {"nmtdeep": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def usage_error(error: typer.TyperException) -> UserError:
    """What typer refused, in our words.

    typer exports only the base class of its errors, so the kind is recognized by its name.
    """
    detail: Any = error
    ctx: Any = getattr(error, "ctx", None)
    parameter: Any = getattr(error, "param", None)
    see = f"see `{ctx.command_path} --help`" if ctx else ""
    match type(error).__name__:
        case "NoSuchOption":
            near = " or ".join(sorted(detail.possibilities or ()))
            hint = f"did you mean {near}?" if near else see
            return UserError(f"there is no option {detail.option_name}", hint=hint)
        case "BadOptionUsage":
            options = (each for each in ctx.command.params if detail.option_name in each.opts)
            option: Any = next(options, None)
            needs = f"needs {option.nargs} values" if option and option.nargs > 1 else ""
            takes_none = option and getattr(option, "is_flag", False)
            what = "takes no value" if takes_none else needs or "needs a value"
            return UserError(what, where=detail.option_name, hint=see)
        case "MissingParameter":
            names = _choices(parameter)
            meaning = ", ".join(names) or str(parameter.help or "").rstrip(".")
            given = " ".join(dict.fromkeys((_name(parameter), _value(parameter))))
            return UserError(
                "is missing", where=_name(parameter), hint=f"give {given} ({meaning}); {see}"
            )
        case "BadParameter" if isinstance(error.__cause__, ValidationError):
            from nmtdeep.config.values import value_problem

            (first, *_) = error.__cause__.errors(include_url=False)
            problem = value_problem(first, _choices(parameter))
            return UserError(problem.what, where=_name(parameter), hint=problem.hint)
        case "BadParameter":
            return UserError(error.message, where=_name(parameter), hint=see)
    return UserError(error.message.rstrip("."), hint=see)


def _name(parameter: Any) -> str:
    """The first long name of an option, such as `--beam`; `RUN` for an argument."""
    if parameter.param_type_name == "argument":
        return _value(parameter)
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))


def _value(parameter: Any) -> str:
    """The name of an option's value in the help; empty for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    descriptor = parameter.type_descriptor
    kind = get_args(descriptor.annotation)[0] if descriptor.is_list else descriptor.annotation
    return str(parameter.metavar or VALUES.get(kind, "NAME"))


def _choices(parameter: Any) -> list[str]:
    """The values that an option or argument may have, if they are names."""
    return list(map(str, parameter.type_descriptor.choices or ()))


def _row(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Names and value of a parameter; its help, choices and default."""
    names = _value(parameter)
    if parameter.param_type_name == "option":
        short_first = sorted(parameter.opts, key=lambda name: name.startswith("--"))
        pair = "".join(f" / {name}" for name in parameter.secondary_opts)
        names = f"{', '.join(short_first)}{pair} {names}".rstrip()
    default = _default(parameter, ctx)
    facts = [
        ", ".join(_choices(parameter)),
        f"default: {default}" if default else "",
        "can be repeated" if parameter.multiple else "",
        "required" if parameter.required else "",
    ]
    shown = "; ".join(filter(None, facts))
    return names, f"{parameter.help or ''}{f'  [{shown}]' if shown else ''}".strip()


def _default(parameter: Any, ctx: Any) -> str:
    """The value of an option that is not given, as it would be typed; may be empty."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.get_default(ctx, call=False)
    if not parameter.show_default or value is None:
        return ""
    if getattr(parameter, "is_flag", False):
        names = parameter.secondary_opts and (parameter.secondary_opts, parameter.opts)[bool(value)]
        return names[0] if names else ""
    return str(value)


def _write_section(heading: str, rows: list[tuple[str, str]], formatter: Any) -> None:
    """Two columns; a long name has a line of its own."""
    if not rows:
        return
    column = min(max(len(names) for names, _ in rows), NAMES_WIDTH)
    indent = " " * (column + 4)
    formatter.write(f"\n{heading}:\n")
    for names, text in rows:
        first = f"  {names:<{column}}  "
        if len(names) > column:
            formatter.write(f"  {names}\n")
            first = indent
        wrapped = textwrap.fill(
            text,
            formatter.width,
            initial_indent=first,
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
        formatter.write(f"{wrapped or first}\n")
