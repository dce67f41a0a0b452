"""How every command reads its options, shows its help and answers Ctrl-C."""

from __future__ import annotations

import signal
import textwrap
from collections import Counter
from enum import Enum
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from nmtdeep.errors import UserError

# What stands for a value in the help, by the name that typer gives its type.
VALUES = {"int": "N", "float": "NUMBER", "str": "TEXT", "path": "PATH", "Path": "PATH"}
NAMES_WIDTH = 28
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Command(TyperCommand):
    """A command whose options are given once, with a plain help text and an example.

    `epilog` is the example: one command line that works.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer, but an option that takes one value may be given only once.

        Raises:
            UserError: if one is given again, also under another of its names.
        """
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)
        for parameter, count in Counter(given).items():
            if count > 1 and not parameter.multiple and not ctx.resilient_parsing:
                raise UserError(_given_again(parameter, count))
        return rest

    def invoke(self, ctx: Any) -> Any:
        """As typer, but Ctrl-C says a line, unless the command is quiet."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if not ctx.params.get("quiet"):
                typer.echo(f"{ctx.command_path}: interrupted by Ctrl-C", err=True)
            raise typer.Exit(128 + signal.SIGINT) from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options, and options under headings of their own."""
        _write_parameters(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The example."""
        _write_example(self, formatter)


class Group(TyperGroup):
    """Commands under one name, each with the first paragraph of its help in full."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options, then commands."""
        _write_parameters(self, ctx, formatter)
        rows = [
            (name, " ".join((command.help or "").split("\n\n")[0].split()))
            for name, command in self.commands.items()
        ]
        _write_section("Commands", rows, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The example."""
        _write_example(self, formatter)


def option_name(parameter: Any) -> str:
    """The first long name of an option, such as `--beam`."""
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))


def value_name(parameter: Any, ctx: Any) -> str:
    """What stands for an option's value in the help; empty for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    return str(parameter.metavar or VALUES.get(_type_name(parameter, ctx), "NAME"))


def choices(parameter: Any, ctx: Any) -> list[str]:
    """The values that an option or argument may have, if they are names; else none."""
    name = _type_name(parameter, ctx)
    is_flag = getattr(parameter, "is_flag", False)
    return [] if is_flag or "," in name or name in VALUES else name.split("|")


def _type_name(parameter: Any, ctx: Any) -> str:
    """`int`, `Path`, `text|json`: what typer calls the type of one value."""
    name = str(parameter.display_type(ctx)).strip("<>")
    return name.removeprefix("list[").removesuffix("]").removesuffix(" range")


def _given_again(parameter: Any, count: int) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    alias = f" ({', '.join(names)} are one option)" if len(names) > 1 else ""
    times = "twice" if count == 2 else f"{count} times"
    return f"{option_name(parameter)} is given {times}{alias}: give it once"


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for parameter in command.get_params(ctx):
        if not parameter.hidden:
            usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
            heading = parameter.rich_help_panel or usual
            sections.setdefault(heading, []).append(_row(parameter, ctx))
    for heading, rows in sections.items():
        _write_section(heading, rows, formatter)


def _write_section(heading: str, rows: list[tuple[str, str]], formatter: Any) -> None:
    """Two columns; names are never cut or broken, and long ones have a line of their own."""
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


def _write_example(command: Any, formatter: Any) -> None:
    if command.epilog:
        formatter.write(f"\nExample:\n  {command.epilog}\n")


def _row(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Names and value of a parameter; its help, choices and default."""
    if parameter.param_type_name == "argument":
        names = value_name(parameter, ctx)
    else:
        names = ", ".join(sorted(parameter.opts, key=lambda name: name.startswith("--")))
        names += "".join(f" / {name}" for name in parameter.secondary_opts)
        names = f"{names} {value_name(parameter, ctx)}".rstrip()
    facts = [
        ", ".join(choices(parameter, ctx)),
        f"default: {default}" if (default := _default(parameter, ctx)) else "",
        "can be repeated" if parameter.multiple else "",
        "required" if parameter.required else "",
    ]
    shown = "; ".join(filter(None, facts))
    return names, f"{parameter.help or ''}{f'  [{shown}]' if shown else ''}".strip()


def _default(parameter: Any, ctx: Any) -> str:
    """The value of an option that is not given, as it would be typed; empty if there is none."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.get_default(ctx, call=False)
    if not parameter.show_default or value is None:
        return ""
    if getattr(parameter, "is_flag", False):
        names = parameter.secondary_opts and (parameter.secondary_opts, parameter.opts)[bool(value)]
        return names[0] if names else ""
    return str(value.value if isinstance(value, Enum) else value)
