"""Options of commands, of which those that several commands share are declared here once.

A command's arguments and options are the parameters of its function: those before the `*` are
arguments. Their help is in the function's docstring, under `Args:`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from inspect import Parameter
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer import Argument, Option
from typer.models import OptionInfo

from nmtdeep.config.decoding import Decoding, DecodingOptions, decoding_options

# The name of a value in the help, by its type; a name from a list is NAME.
VALUES: dict[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH", bool: ""}
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
    "Machine": ("device", "precision", "quantize", "max_tokens", "threads", "processes", "verify"),
}
# Spellings of other toolkits.
ALIASES = {
    "beam": ("-b", "--beam-size"),
    "lenpen": ("--length-penalty", "--alpha"),
    "n_best": ("--nbest",),
}


class Bundle(NamedTuple):
    """Options that a command's function receives as one argument.

    Attributes:
        options: parameters, one for each option.
        collect: makes the argument of the options' values by name.
    """

    options: Sequence[Parameter]
    collect: Callable[[dict[str, Any]], Any]


def flag(name: str) -> str:
    """`--max-tokens` for `max_tokens`."""
    return f"--{name.replace('_', '-')}"


def documented(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The docstring without its section of arguments, and that section: texts by name."""
    text, _, arguments = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", arguments, re.MULTILINE)
    return text, {name: " ".join(entry.split()) for name, entry in entries}


def parameters_of(function: Callable[..., Any]) -> tuple[list[Parameter], dict[str, Bundle]]:
    """The parameters of a command for typer, and the bundles of options among its arguments.

    A switch that is off by default has no `--no-...`.
    """
    parameters: list[Parameter] = []
    bundles = {}
    _, texts = documented(function)
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        name, default = parameter.name, parameter.default
        kind, info = _split(parameter.annotation)
        if isinstance(info, Bundle):
            bundles[name] = info
            parameters += info.options
            continue
        is_option = parameter.kind is Parameter.KEYWORD_ONLY
        info = copy(info) or (Option() if is_option else Argument(metavar=name.upper()))
        if kind is bool and default is False and info.default is ...:
            info.default = flag(name)
        info.rich_help_panel = info.rich_help_panel or (
            "Machine" if name in PANELS["Machine"] else None
        )
        _describe(info, kind, info.help or texts[name])
        parameters.append(option(name, Annotated[kind, info], default))
    return parameters, bundles


def _describe(info: Any, kind: Any, text: str) -> None:
    """Set the help of an option or argument, and the name of its value."""
    origins = {get_origin(part): part for part in (kind, *get_args(kind))}
    if Literal in origins:
        text += f" One of: {', '.join(map(str, get_args(origins[Literal])))}."
    if list in origins and isinstance(info, OptionInfo):
        text += " Can be repeated."
    info.help = text
    plain = {kind, *get_args(kind), *get_args(origins.get(list))}
    info.metavar = info.metavar or next((VALUES[each] for each in VALUES if each in plain), "NAME")


def _split(annotation: Any) -> tuple[Any, Any]:
    """A type and what it is annotated with: `int | None` and its option."""
    if get_origin(annotation) is Annotated:
        kind, info = get_args(annotation)
        return kind, info
    if get_origin(annotation) in (Union, UnionType):
        parts = [_split(part) for part in get_args(annotation)]
        return Union[tuple(kind for kind, _ in parts)], next((i for _, i in parts if i), None)  # noqa: UP007
    return annotation, None


def option(name: str, annotation: Any, default: Any = None) -> Parameter:
    """An option of a command, as a parameter of its function."""
    kind = Parameter.KEYWORD_ONLY
    return Parameter(name, kind, default=default, annotation=annotation)


def option_of(
    name: str,
    field: FieldInfo,
    *,
    kind: Any = None,
    panel: str | None = None,
    default: str = "",
    metavar: str | None = None,
) -> Parameter:
    """An option for a field of a model, which says its type, meaning and default.

    The model checks the value, of which None means that the option was not given.

    Args:
        kind: type of the option; None: the field's.
        panel: heading of the option; None: that in `PANELS`.
        default: what the help says is the default.
    """
    kind = kind or _split(field.annotation)[0]
    panel = panel or next((key for key, names in PANELS.items() if name in names), None)
    info = Option(flag(name), *ALIASES.get(name, ()), rich_help_panel=panel, metavar=metavar)
    _describe(info, kind, sentence(field) + (default and f" Default: {default}."))
    if kind is bool:
        return option(name, Annotated[bool, info], default=False)
    return option(name, Annotated[kind | None, info])


def sentence(field: FieldInfo) -> str:
    """The description of a field as a sentence."""
    text = str(field.description)
    return f"{text[0].upper()}{text[1:]}."


def options_of(
    model: type[BaseModel], omit: Iterable[str] = (), panel: str | None = None, **defaults: str
) -> list[Parameter]:
    """An option for each field of a model.

    Args:
        panel: as in `option_of`.
        defaults: what the help shows instead of a field's default.
    """
    options = []
    for name, field in model.model_fields.items():
        if name not in omit:
            plain = "" if field.default is None or field.default is False else str(field.default)
            default = defaults.get(name, plain)
            options.append(option_of(name, field, panel=panel, default=default))
    return options


def decoding(*omit: str, **defaults: str) -> Bundle:
    """The options for translating, which a command receives as checked `DecodingOptions`.

    Args:
        omit: fields that the command does not have.
        defaults: as in `options_of`.
    """
    recipe = dict.fromkeys((*Decoding.model_fields, "input_is"), "the recipe's")
    options = options_of(DecodingOptions, omit, **recipe | defaults)
    return Bundle(options, lambda given: decoding_options(given, flag))


def complete_recipe(incomplete: str) -> list[str]:
    """Shipped recipes and recipe files whose names begin so."""
    from nmtdeep.config.names import names

    folder, slash, _ = incomplete.rpartition("/")
    paths = sorted(Path(folder or slash or ".").glob("*.yaml"))
    files = [f"{folder}{slash}{path.name}" for path in paths]
    return [name for name in [*names(), *files] if name.startswith(incomplete)]


def complete_metric(incomplete: str) -> list[str]:
    """Metrics of `nmtdeep score` whose names begin so."""
    from nmtdeep.scoring import METRICS

    return [name for name in METRICS if name.startswith(incomplete)]


def recipe_argument(metavar: str) -> Any:
    """An argument that is completed to names of recipes."""
    return Argument(metavar=metavar, autocompletion=complete_recipe)


Whole = Annotated[int, Option(min=1)]
Device = Annotated[str, Option(help=sentence(DecodingOptions.model_fields["device"]))]
Threads = Annotated[
    int | None, Option(min=1, help=sentence(DecodingOptions.model_fields["threads"]))
]
Models = Annotated[
    list[Path],
    Option("-m", "--model", "--path", help="Run or checkpoint; several are an ensemble."),
]
METRIC = Option(metavar="NAME", autocompletion=complete_metric)
Run = Annotated[Path, Argument(metavar="RUN", help="Run directory or checkpoint.")]
Runs = Annotated[list[Path], Argument(metavar="RUN", help="Run directories or checkpoints.")]
RECIPE_HELP = "A recipe's name (nmtdeep recipes list) or file."
Recipe = Annotated[
    str, Argument(metavar="RECIPE", help=RECIPE_HELP, autocompletion=complete_recipe)
]
Overrides = Annotated[
    list[str] | None, Argument(metavar="KEY=VALUE", help="Recipe values to change.")
]
Data = Annotated[Path, Option(help="Directory that `nmtdeep preprocess` wrote.")]
Out = Annotated[Path, Option("-o", "--out", "--output")]
Verify = Annotated[
    bool,
    Option(help="Compare token files of --data with their checksums first, about 1 GB a second."),
]
SourceLanguage = Annotated[
    str | None, Option("-s", "--source-lang", help="Source language code, such as en.")
]
TargetLanguage = Annotated[
    str | None, Option("-t", "--target-lang", help="Target language code, such as de.")
]
Json = Annotated[bool, Option("--json", help="Print all numbers as JSON.")]
Overwrite = Annotated[bool, Option(help="Replace the output of an earlier command.")]
DryRun = Annotated[bool, Option(help="Check the input and show what would be done, only.")]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Print no progress, tables or summary.")]


def as_typed(typed: Path, checkpoint: Path) -> Path:
    """The checkpoint that a run or checkpoint stands for, under the name that the user typed."""
    for folder in (typed, typed.parent):
        if folder.resolve() == checkpoint.parent:
            return folder / checkpoint.name
    return checkpoint
