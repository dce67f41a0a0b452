"""Parsing of options and errors of the command line, for every command."""

from __future__ import annotations

import inspect
import signal
import traceback
from collections.abc import Callable
from inspect import Parameter
from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from nmtdeep.cli.options import documented, option, parameters_of
from nmtdeep.cli.start import drop_messages
from nmtdeep.config.other_toolkits import instead
from nmtdeep.config.values import did_you_mean, listed, value_problem
from nmtdeep.errors import UserError

Function = Callable[..., Any]
VERBOSE_OPTION = typer.Option("-v", "--verbose")
VERBOSE = option("verbose", bool, VERBOSE_OPTION, "Print a traceback with an error.", default=False)


class Command(TyperCommand):
    """A command that accepts each option once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer, which would silently use the last of `--train a --train b`.

        Raises:
            UserError: if an option that takes one value is repeated.
        """
        given = self.make_parser(ctx).parse_args(args=list(args))[2]
        for parameter in given:
            if given.count(parameter) > 1 and not (parameter.multiple or ctx.resilient_parsing):
                raise UserError("is given twice", where=_name(parameter), hint="pass it once")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """As typer, which would add Python's type to an argument, such as <list[Path]>."""
        arguments: list[Any] = [each for each in self.params if each.param_type_name == "argument"]
        for argument in arguments:
            argument.display_type_rich = lambda ctx: None
        super().format_options(ctx, formatter)


class Group(TyperGroup):
    """Commands under one name."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As typer, which knows no command of another toolkit.

        Raises:
            UserError: if there is no command of this name.
        """
        if not ctx.resilient_parsing and args[0] not in self.commands:
            use, close = instead("command", args[0]), did_you_mean(args[0], list(self.commands))
            hint = f"use {use}" if use else close or f"see `{ctx.command_path} --help`"
            raise UserError(f"no such command: {args[0]}", hint=hint)
        return super().resolve_command(ctx, args)


def add_command(app: typer.Typer, function: Function, example: str) -> None:
    """Make a function a command of `app`, with the option --verbose.

    Args:
        example: a command line that works.
    """
    text = documented(function)[0]
    parameters, bundles = parameters_of(function)

    def command(ctx: typer.Context, *, verbose: bool, **values: Any) -> None:
        if not _prints_result(function.__name__, values):
            drop_messages()
        try:
            for name, (options, collect) in bundles.items():
                values[name] = collect(**{each.name: values.pop(each.name) for each in options})
            function(**values)
        except KeyboardInterrupt:
            if not values.get("quiet"):
                typer.echo(f"{ctx.command_path}: interrupted by Ctrl-C", err=True)
            raise typer.Exit(128 + signal.SIGINT) from None
        except UserError:
            if verbose:
                traceback.print_exc()
            raise

    context = Parameter("ctx", Parameter.POSITIONAL_ONLY, annotation=typer.Context)
    command.__signature__ = inspect.Signature([context, *parameters, VERBOSE])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    app.command(
        function.__name__.strip("_").replace("_", "-"),
        cls=Command,
        help=text,
        short_help=text.partition("\n\n")[0],
        epilog=f"Example:\n{example}",
        no_args_is_help=any(each.default is Parameter.empty for each in parameters),
    )(command)


def _prints_result(command: str, values: dict[str, Any]) -> bool:
    """Whether stdout gets a result, and not only messages about files or a service."""
    if any(values.get(name) for name in ("dry_run", "as_json")):
        return True
    places = {str(values.get(name) or "-") for name in ("out", "output", "csv", "plot", "port")}
    return command not in ("plot", "average_checkpoints") and places <= {"-", "/dev/stdout"}


def usage_error(error: typer.TyperException) -> UserError:
    """An error of typer as one line with a hint.

    typer exports only the base class of its errors, so the kind is recognized by its attributes.
    """
    ctx: Any = getattr(error, "ctx", None)
    parameter: Any = getattr(error, "param", None)
    if isinstance(error.__cause__, ValidationError):
        first: dict[str, Any] = {**error.__cause__.errors(include_url=False)[0]}
        if choices := parameter.type_descriptor.choices:
            first |= {"type": "literal_error", "ctx": {"expected": listed(choices)}}
        problem = value_problem(first)
        return UserError(problem.what, where=_name(parameter), hint=problem.hint)
    hint = f"see `{ctx.command_path} --help`" if ctx else ""
    name = getattr(error, "option_name", "")
    if hasattr(error, "possibilities"):
        return UserError(f"no such option: {name}", hint=_cure(name, ctx) or hint)
    return UserError(error.format_message().rstrip("."), hint=hint)


def _cure(name: str, ctx: Any) -> str:
    """What to write instead of an option that does not exist; empty if nothing is similar."""
    if use := instead(" ".join(ctx.command_path.split()[1:2]), name):
        return use if use[:1] != "-" else f"write {use}"
    parameters = ctx.command.params
    key = name.strip("-") if "." in name else instead("key", name)
    if key and {"overrides", "subjects"} & {each.name for each in parameters}:
        full = key if "." in key else f"model.encoder.{key}"
        return key if " " in key else f"write {full}=VALUE, without dashes"
    return did_you_mean(name, [option for each in parameters for option in each.opts])


def _name(parameter: Any) -> str:
    """The first long name of an option, such as `--beam`; `RUN` for an argument."""
    return str(next((name for name in parameter.opts if name[:2] == "--"), parameter.metavar))
