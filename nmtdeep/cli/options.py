"""Options that several commands share, and options that are the fields of a model."""

from __future__ import annotations

import os
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer import Argument, Exit, Option

from nmtdeep.cli.command import Bundle, bundle, flag, option
from nmtdeep.config.decoding import Decoding, DecodingOptions, decoding_options
from nmtdeep.errors import UserError

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")  # variables of torchrun
# Options of `DecodingOptions` for samples, and for the choice among translations.
SAMPLING = (
    *("sampling", "temperature", "top_k", "top_p", "epsilon", "seed"),
    *("mbr", "rerank", "samples"),
)
# Spellings of other toolkits.
ALIASES = {
    "beam": ("-b", "--beam-size"),
    "lenpen": ("--length-penalty", "--alpha"),
    "n_best": ("--nbest",),
}


def sentence(field: FieldInfo) -> str:
    """The description of a field as a sentence."""
    text = str(field.description)
    return f"{text[0].upper()}{text[1:]}."


def options_of(model: type[BaseModel], *omit: str, **defaults: str) -> list[Parameter]:
    """An option for each field of a model but `omit`, which says its type, meaning and default.

    The model checks the values, of which None means that the option was omitted. The help shows
    `defaults` instead of a field's own.
    """
    options, kinds = [], get_type_hints(model)
    for name, field in model.model_fields.items():
        if name in omit:
            continue
        is_switch = kinds[name] is bool
        info = Option(flag(name), *ALIASES.get(name, ()))
        text, default = sentence(field), defaults.get(name, field.default)
        if default is not None and not is_switch:
            text += f" Default: {default}."
        kind = bool if is_switch else kinds[name] | None
        options.append(option(name, kind, info, text, False if is_switch else None))
    return options


def decoding(*omit: str, **defaults: str) -> Bundle:
    """The options for translating, but `omit`; a command receives checked `DecodingOptions`."""
    recipe = dict.fromkeys((*Decoding.model_fields, "input_is"), "the recipe's")
    options = options_of(DecodingOptions, *omit, **recipe | defaults)

    def collect(**given: Any) -> DecodingOptions:
        # A switch that is off was omitted: a recipe may have it on.
        chosen = {name: None if value is False else value for name, value in given.items()}
        checked = decoding_options(chosen, flag)
        return checked if "processes" in omit else of_launcher(checked)

    return Bundle(options, collect)


def of_launcher(options: DecodingOptions) -> DecodingOptions:
    """The options in rank 0 of torchrun, which starts as many processes; other ranks leave."""
    from nmtdeep.training.launch import is_launched

    if not is_launched():
        return options
    rank, count, here = (int(os.environ[name]) for name in RANKS)
    if here < count:
        hint = "give each machine a part of the input"
        raise UserError("only train uses several machines", where="torchrun", hint=hint)
    if options.processes not in (1, count):
        what = f"{options.processes}, but torchrun has started {count}"
        raise UserError(what, where="--processes", hint="omit --processes or torchrun")
    if rank > 0:
        raise Exit
    return options.model_copy(update={"processes": count})


def complete_recipe(incomplete: str) -> list[str]:
    """Shipped recipes and recipe files whose names begin so."""
    from nmtdeep.config.names import recipe_files

    folder, slash, _ = incomplete.rpartition("/")
    paths = sorted(Path(folder or slash or ".").glob("*.yaml"))
    files = [f"{folder}{slash}{path.name}" for path in paths]
    return [name for name in [*recipe_files(), *files] if name.startswith(incomplete)]


def complete_key(incomplete: str) -> list[str]:
    """Keys of recipes that begin so, each with the sign behind which its value comes."""
    from nmtdeep.config.problems import keys

    return [f"{key}=" for key in map(".".join, keys()) if key.startswith(incomplete)]


def complete_subject(incomplete: str) -> list[str]:
    """Recipes and keys whose names begin so."""
    return [*complete_recipe(incomplete), *complete_key(incomplete)]


def complete_metric(incomplete: str) -> list[str]:
    """Metrics of `nmtdeep score` whose names begin so."""
    from nmtdeep.scoring import METRICS

    return [name for name in METRICS if name.startswith(incomplete)]


Whole = Annotated[int, Option(min=1)]
OptionalWhole = Annotated[int | None, Option(min=1)]
Device = Annotated[str, Option(help=sentence(DecodingOptions.model_fields["device"]))]
Threads = Annotated[int | None, Option(min=1, max=1024, help="Number of CPU threads.")]


def prepare_training(threads: int | None) -> None:
    """Set up this process, or a rank of a training: its threads, and very small numbers as zero.

    The moments of units that no longer learn fall below 1.2e-38, where a CPU computes slowly. Only
    threads that torch starts after this inherit it, and taking it back would not reach them.
    """
    import torch

    torch.set_flush_denormal(True)
    if threads:
        torch.set_num_threads(threads)


def choose_device(*, device: Device = "auto", threads: Threads = None) -> Any:
    """The device of --device; sets the number of CPU threads."""
    import torch

    from nmtdeep.devices import resolve_device

    torch.set_num_threads(threads or torch.get_num_threads())
    return resolve_device(device)


Place = Annotated[Any, bundle(choose_device)]
Models = Annotated[
    list[Path],
    Option("-m", "--model", "--path", help="Run or checkpoint; several are an ensemble."),
]
METRIC = Option(metavar="NAME", autocompletion=complete_metric)
COMET_MODEL = Option(metavar="NAME|PATH")
Run = Annotated[Path, Argument(metavar="RUN", help="Run directory or checkpoint.")]
Runs = Annotated[list[Path], Argument(metavar="RUN", help="Run directories or checkpoints.")]
RECIPE_HELP = "A recipe's name (nmtdeep recipes list) or file."
RECIPE = Argument(metavar="RECIPE", help=RECIPE_HELP, autocompletion=complete_recipe)
KEY_HELP = "Recipe values to change."
KEY = Argument(metavar="KEY=VALUE", help=KEY_HELP, autocompletion=complete_key)
Recipe = Annotated[str, RECIPE]
Overrides = Annotated[list[str] | None, KEY]
Data = Annotated[Path, Option(help="Directory that `nmtdeep preprocess` wrote.")]
OUT = Option("-o", "--out", "--output")
Out = Annotated[Path, OUT]
OptionalOut = Annotated[Path | None, OUT]
VERIFY_HELP = "Verify checksums of --data first (about 1 GB per second)."
Verify = Annotated[bool, Option(help=VERIFY_HELP)]
SourceLanguage = Annotated[
    str | None, Option("-s", "--source-lang", help="Source language code, such as en.")
]
TargetLanguage = Annotated[
    str | None, Option("-t", "--target-lang", help="Target language code, such as de.")
]
Overwrite = Annotated[bool, Option(help="Replace the output of an earlier command.")]
DryRun = Annotated[bool, Option(help="Check the input and show what would be done.")]
Quiet = Annotated[bool, Option("-q", "--quiet", help="Print no progress, tables or summary.")]
