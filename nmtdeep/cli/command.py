"""A function as a command: its parameters are arguments and options, its docstring is the help.

The parameters before the `*` are arguments. Their help is in the docstring, under `Args:`.
"""

from __future__ import annotations

import ast
import inspect
import re
import signal
import traceback
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer import Argument, Option
from typer.core import TyperCommand
from typer.models import OptionInfo

from nmtdeep.cli.errors import long_name
from nmtdeep.cli.start import drop_messages
from nmtdeep.errors import UserError

# The name of a value in the help, by its type; a name from a list is NAME.
VALUES: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH", bool: ""}


class Bundle(NamedTuple):
    """Options that a command's function receives as one argument, which `collect` makes of them."""

    options: Sequence[Parameter]
    collect: Callable[..., Any]


class Command(TyperCommand):
    """A command that accepts each option once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer, which would silently use the last of `--train a --train b`."""
        given = self.make_parser(ctx).parse_args(args=list(args))[2]
        for parameter in given:
            if given.count(parameter) > 1 and not (parameter.multiple or ctx.resilient_parsing):
                raise UserError("is given twice", where=long_name(parameter), hint="pass it once")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """As typer, which would add Python's type to an argument, such as <list[Path]>."""
        arguments: list[Any] = [each for each in self.params if each.param_type_name == "argument"]
        for argument in arguments:
            argument.display_type_rich = lambda ctx: None
        super().format_options(ctx, formatter)


def make_command(module: str, name: str, example: str) -> Any:
    """The command that a function of a module is, with the option --verbose and an example."""
    loaded = import_module(module)
    function = getattr(loaded, name, None) or getattr(loaded, f"{name}_")
    parameters, bundles = parameters_of(function)
    verbose_option = Option("-v", "--verbose")
    text = "Print a traceback with an error."
    shared = option("verbose", bool, verbose_option, text, default=False)

    def command(ctx: typer.Context, *, verbose: bool, **values: Any) -> None:
        if not _prints_result(name, values):
            drop_messages()
        try:
            for key, (options, collect) in bundles.items():
                values[key] = collect(**{each.name: values.pop(each.name) for each in options})
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
    command.__signature__ = inspect.Signature([context, *parameters, shared])  # type: ignore[attr-defined]
    command.__annotations__ = {}
    app = typer.Typer(rich_markup_mode=None, add_completion=False)
    app.command(
        name.replace("_", "-"),
        cls=Command,
        help="\n\n".join(paragraphs(docstrings(module)[name])),
        epilog=f"Example:\n{example}",
        no_args_is_help=any(each.default is Parameter.empty for each in parameters),
    )(command)
    return typer.main.get_command(app)


def _prints_result(command: str, values: dict[str, Any]) -> bool:
    """Whether stdout gets a result, and not only messages about files or a service."""
    if any(values.get(name) for name in ("dry_run", "as_json")):
        return True
    if command in ("plot", "average_checkpoints", "serve"):
        return False
    places = {str(values.get(name) or "-") for name in ("out", "output", "csv", "plot")}
    return places <= {"-", "/dev/stdout"}


@cache
def docstrings(module: str) -> dict[str, str]:
    """The docstrings of the functions and classes of a module, which is not imported for them."""
    spec = find_spec(module)
    assert spec and spec.origin
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    documented = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return {node.name.rstrip("_"): ast.get_docstring(node) or "" for node in documented}


def paragraphs(docstring: str) -> list[str]:
    """The paragraphs before the section of arguments, a line each."""
    text = docstring.partition("\n\nArgs:\n")[0]
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]


def bundle(collect: Callable[..., Any]) -> Bundle:
    """The parameters of a function or dataclass as options, and its result as the argument."""
    return Bundle(parameters_of(collect)[0], collect)


def parameters_of(function: Callable[..., Any]) -> tuple[list[Parameter], dict[str, Bundle]]:
    """The parameters of a command for typer, and the bundles of options among its arguments."""
    parameters: list[Parameter] = []
    bundles = {}
    docstring = docstrings(function.__module__)[function.__name__.rstrip("_")]
    _, _, arguments = docstring.partition("\n\nArgs:\n")
    texts = dict(re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", arguments, re.MULTILINE))
    annotations = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, info = annotations[name], None
        if get_origin(kind) is Annotated:
            kind, info = get_args(kind)
        if isinstance(info, Bundle):
            bundles[name] = info
            parameters += info.options
            continue
        if info is None:
            is_option = parameter.kind is Parameter.KEYWORD_ONLY
            info = Option() if is_option else Argument(metavar=name.upper())
        text = info.help or " ".join(texts[name].split())
        parameters.append(option(name, kind, info, text, parameter.default))
    return parameters, bundles


def option(name: str, kind: Any, info: Any, text: str, default: Any = None) -> Parameter:
    """A parameter for typer: an `Option(...)` or `Argument(...)` of type `kind` with a help text.

    A switch that is off by default has no `--no-...`.
    """
    info, inner, is_list = copy(info), kind, False
    while get_origin(inner) not in (None, Literal):  # X | None, list[X]
        is_list = is_list or get_origin(inner) is list
        inner = get_args(inner)[0]
    if get_origin(inner) is Literal:
        text += f" One of: {', '.join(get_args(inner))}."
    if is_list and isinstance(info, OptionInfo):
        text += " Can be repeated."
    if kind is bool and default is False and info.default is ...:
        info.default = flag(name)
    info.help, info.metavar = text, info.metavar or VALUES.get(inner, "NAME")
    annotation, keyword = Annotated[kind, info], Parameter.KEYWORD_ONLY
    return Parameter(name, keyword, default=default, annotation=annotation)


def flag(name: str) -> str:
    """`--max-tokens` for `max_tokens`."""
    return f"--{name.replace('_', '-')}"
