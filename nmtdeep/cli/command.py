"""How every command reads its options, shows its help and reports a wrong command line."""

from __future__ import annotations

import inspect
import platform
import signal
import textwrap
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand, TyperGroup

from nmtdeep import __version__
from nmtdeep.cli.options import documented, option, parameters_of
from nmtdeep.errors import UserError

Function = Callable[..., Any]
PACKAGES = ("torch", "numpy", "safetensors", "sacremoses", "subword-nmt", "sacrebleu")
VERBOSE = option(
    "verbose",
    Annotated[
        bool, typer.Option("-v", "--verbose", help="Print versions, and a traceback with an error.")
    ],
    default=False,
)
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
                names, text = parameter.get_help_record(ctx)
                names = parameter.metavar if is_argument else names
                sections.setdefault(heading, []).append((names, text))
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
    app: typer.Typer, function: Function, example: str, panel: str | None = None
) -> None:
    """Make a function a command of `app`, with the option --verbose.

    Args:
        example: a command line that works.
        panel: the heading of the command in the help of `app`.
    """
    parameters, bundles = parameters_of(function)

    def command(*, verbose: bool, **values: Any) -> None:
        if verbose:
            typer.echo(", ".join(map(" ".join, versions().items())), err=True)
        try:
            for name, (options, collect) in bundles.items():
                values[name] = collect({each.name: values.pop(each.name) for each in options})
            function(**values)
        except UserError:
            if verbose:
                traceback.print_exc()
            raise

    command.__signature__ = inspect.Signature([*parameters, VERBOSE])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    app.command(
        function.__name__.strip("_").replace("_", "-"),
        cls=Command,
        help=documented(function)[0],
        epilog=example,
        no_args_is_help=any(each.default is inspect.Parameter.empty for each in parameters),
        rich_help_panel=panel,
    )(command)


def add_group(
    app: typer.Typer, name: str, text: str, commands: Mapping[Function, str], panel: str
) -> None:
    """Make functions the commands of a group of `app`, such as `recipes list`.

    Args:
        text: the help of the group.
        commands: an example for each function; the first is also the group's.
        panel: the heading of the group in the help of `app`.
    """
    group = typer.Typer(
        cls=Group, help=text, no_args_is_help=True, epilog=next(iter(commands.values()))
    )
    group.callback()(lambda: None)  # a group of one command is a group
    for function, example in commands.items():
        add_command(group, function, example)
    app.add_typer(group, name=name, rich_help_panel=panel)


def versions() -> dict[str, str]:
    """The packages that a report of a fault should name, with their versions."""
    versions = {"nmtdeep": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "missing"
    return versions


def usage_error(error: typer.TyperException) -> UserError:
    """What typer refused, as one line with a hint.

    typer exports only the base class of its errors, so the kind is recognized by its attributes.
    """
    ctx: Any = getattr(error, "ctx", None)
    parameter: Any = getattr(error, "param", None)
    see = f"see `{ctx.command_path} --help`" if ctx else ""
    if isinstance(error.__cause__, ValidationError):
        from nmtdeep.config.values import value_problem

        (first, *_) = error.__cause__.errors(include_url=False)
        problem = value_problem(first, list(map(str, parameter.type_descriptor.choices or ())))
        return UserError(problem.what, where=_name(parameter), hint=problem.hint)
    if parameter and not error.message:
        given = " ".join(dict.fromkeys((_name(parameter), str(parameter.metavar))))
        hint = f"give {given} ({str(parameter.help).rstrip('.')}); {see}"
        return UserError("is missing", where=_name(parameter), hint=hint)
    what = error.format_message() if hasattr(error, "format_message") else error.message
    return UserError(what.rstrip("."), where=_name(parameter) if parameter else "", hint=see)


def _name(parameter: Any) -> str:
    """The first long name of an option, such as `--beam`; `RUN` for an argument."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar)
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))


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
