"""Options that several commands share, each declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic import BaseModel

from nmtdeep.cli import completion
from nmtdeep.config.decoding import Decoding, DecodingOptions, decoding_options

Command = Callable[..., None]
# Options in the help under a heading of their own.
PANELS = {
    "Search": (
        "beam",
        "lenpen",
        "lenpen_form",
        "n_best",
        "max_length_factor",
        "max_length_constant",
    ),
    "Text": ("input_is", "output_is", "max_source_tokens", "long_lines"),
    "Sampling": ("sampling", "temperature", "top_k", "top_p", "seed"),
    "Machine": ("device", "precision", "quantize", "max_tokens", "threads", "processes"),
}
# Spellings of other toolkits.
ALIASES = {
    "beam": ("-b", "--beam-size"),
    "lenpen": ("--length-penalty", "--alpha"),
    "n_best": ("--nbest",),
}


def flag(name: str) -> str:
    """`--max-tokens` for `max_tokens`."""
    return f"--{name.replace('_', '-')}"


def options_of(
    model: type[BaseModel], *, omit: Iterable[str] = (), panel: str = "Options", **defaults: str
) -> list[inspect.Parameter]:
    """An option for each field of a model, which says its type, meaning and default.

    The model checks the values, of which None means that an option was not given.

    Args:
        panel: heading of the options that `PANELS` does not name.
        defaults: what the help shows instead of a field's default.
    """
    found = []
    for name, field in model.model_fields.items():
        if name in omit:
            continue
        is_flag = field.annotation is bool
        shown = defaults.get(name) or ("" if field.default is None else str(field.default))
        text = str(field.description)
        info = typer.Option(
            flag(name),
            *ALIASES.get(name, ()),
            help=f"{text[0].upper()}{text[1:]}.",
            show_default=False if is_flag else shown or False,
            rich_help_panel=next((key for key, names in PANELS.items() if name in names), panel),
        )
        kind = bool if is_flag else _plain(field.annotation) | None
        found.append(option(name, Annotated[kind, info], False if is_flag else None))
    return found


def _plain(annotation: Any) -> Any:
    """A field's type without None and without constraints, which the model checks."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = get_args(annotation)[0]
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def option(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """An option of a command, as a parameter of its function."""
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=annotation)


def replace_options(
    command: Command,
    function: Callable[..., Any],
    *,
    add: Iterable[inspect.Parameter],
    drop: str = "",
) -> None:
    """Give a wrapper the options of the function it wraps, but for `drop`, and those of `add`."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own if each.name != drop]
    command.__signature__ = inspect.Signature([*kept, *add])  # type: ignore[attr-defined]
    command.__annotations__ = {}


def collected(
    argument: str,
    options: Iterable[inspect.Parameter],
    collect: Callable[[dict[str, Any]], Any],
    *,
    like: Callable[..., Any] | None = None,
) -> Callable[[Command], Command]:
    """A decorator: the command has `options` instead of an argument of its function.

    Args:
        argument: name; its value is what `collect` makes of the options' values by name.
        like: the function whose name, help and other options the command has; None: its own.
    """
    options = list(options)

    def decorate(function: Command) -> Command:
        shown = like or function

        @functools.wraps(shown)
        def command(**values: Any) -> None:
            given = {option.name: values.pop(option.name) for option in options}
            function(**values, **{argument: collect(given)})

        replace_options(command, shown, add=options, drop=argument)
        return command

    return decorate


def decoding(*omit: str, **defaults: str) -> Callable[[Command], Command]:
    """A decorator: `options` of the command's function are checked `DecodingOptions`.

    Args:
        omit: fields that the command does not have.
        defaults: as in `options_of`.
    """
    recipe = dict.fromkeys((*Decoding.model_fields, "input_is"), "the recipe's")
    options = options_of(DecodingOptions, omit=omit, **recipe | defaults)
    return collected("options", options, lambda given: decoding_options(given, flag))


def _meaning(name: str) -> str:
    """The help text of a field of `DecodingOptions`."""
    text = str(DecodingOptions.model_fields[name].description)
    return f"{text[0].upper()}{text[1:]}."


Device = Annotated[str, typer.Option(help=_meaning("device"), rich_help_panel="Machine")]
Threads = Annotated[
    int | None, typer.Option(min=1, help=_meaning("threads"), rich_help_panel="Machine")
]
Models = Annotated[
    list[Path],
    typer.Option("-m", "--model", "--path", help="Run or checkpoint; several are an ensemble."),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory or checkpoint.")]
Runs = Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories or checkpoints.")]
Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name (nmtdeep recipes list) or file.",
        autocompletion=completion.recipes,
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe values to change.")
]
Data = Annotated[Path, typer.Option(help="Directory that `nmtdeep preprocess` wrote.")]
Verify = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        help="Compare token files of --data with their checksums first, about 1 GB a second.",
        rich_help_panel="Machine",
    ),
]
SourceLanguage = Annotated[
    str | None, typer.Option("-s", "--source-lang", help="Source language code, such as en.")
]
TargetLanguage = Annotated[
    str | None, typer.Option("-t", "--target-lang", help="Target language code, such as de.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of worker processes.", show_default="one per core")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output of an earlier command.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the input and show what would be done, only.")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress, tables or summary.")]


def as_typed(typed: Path, checkpoint: Path) -> Path:
    """The checkpoint that a run or checkpoint stands for, under the name that the user typed."""
    for folder in (typed, typed.parent):
        if folder.resolve() == checkpoint.parent:
            return folder / checkpoint.name
    return checkpoint
