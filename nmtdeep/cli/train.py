"""`nmtdeep train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.choices import Verbose
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.config import Recipe

SHORT_CUTS = {
    "max_tokens": "training.batches.max_tokens",
    "tokens_per_update": "training.batches.tokens_per_update",
    "lr": "training.schedule.lr",
    "warmup_updates": "training.schedule.warmup_updates",
    "max_updates": "training.max_updates",
    "max_epochs": "training.max_epochs",
    "clip_norm": "training.clip_norm",
    "label_smoothing": "training.label_smoothing",
    "seed": "training.seed",
    "patience": "training.validation.patience",
    "precision": "training.precision",
    "log_interval": "training.log_every",
}


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A name (nmtdeep recipes list) or a file; a run that has begun needs none.",
            autocompletion=completion.recipes,
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Recipe values to change.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Directory that `nmtdeep preprocess` wrote.  [required]")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Run directory; an interrupted run goes on.  [required]"),
    ] = None,
    config: Annotated[str | None, typer.Option("-c", "--config", hidden=True)] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Padded tokens that one device holds at once.")
    ] = None,
    tokens_per_update: Annotated[
        int | None, typer.Option(help="Padded tokens of one update, over all devices.")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Peak learning rate.")] = None,
    warmup_updates: Annotated[int | None, typer.Option(help="Updates until the peak.")] = None,
    max_updates: Annotated[int | None, typer.Option(help="Stop after this many updates.")] = None,
    max_epochs: Annotated[int | None, typer.Option(help="Stop after this many epochs.")] = None,
    clip_norm: Annotated[float | None, typer.Option(help="Largest gradient norm; 0: off.")] = None,
    label_smoothing: Annotated[
        float | None,
        typer.Option(help="Probability taken from the target token and spread over all."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed of initialization, data order and dropout.")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(help="Validations without a better one until the end; 0: never.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Number format: auto, bf16, fp16 or fp32.")
    ] = None,
    bf16: Annotated[bool, typer.Option("--bf16", hidden=True)] = False,
    fp16: Annotated[bool, typer.Option("--fp16", hidden=True)] = False,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")] = "auto",
    cpu: Annotated[bool, typer.Option("--cpu", hidden=True)] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")] = None,
    processes: Annotated[
        int,
        typer.Option(
            min=1,
            help="Processes that train together: one per GPU, or sharing the CPU threads.",
        ),
    ] = 1,
    log_interval: Annotated[int | None, typer.Option(help="Updates between log lines.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print config, parameters and memory; train nothing.")
    ] = False,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Start from the beginning: delete what a training left in --out."
        ),
    ] = False,
    final_scores: Annotated[
        bool | None,
        typer.Option(
            help="Translate and score the validation and test sets after the last update.",
            show_default="only if the model has learned something",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train a model, or go on where an interrupted training stopped.

    The same command again resumes exactly: killed and resumed gives the numbers of an uninterrupted
    training.
    """
    flags = dict(locals())
    name, changes = _recipe_and_overrides(config, recipe, overrides or [], out)
    precision = "bf16" if bf16 else "fp16" if fp16 else precision
    flags["precision"] = precision
    changes += [
        f"{key}={flags[flag]}" for flag, key in SHORT_CUTS.items() if flags[flag] is not None
    ]
    if data is None:
        raise UserError("--data is missing: give the directory that `nmtdeep preprocess` wrote")
    resolved = _of_languages(data, name, changes)
    if out is None and not dry_run:
        raise UserError("--out is missing: give a directory for the run")
    how: dict[str, Any] = {
        "data": data,
        "out": out,
        "device": "cpu" if cpu else device,
        "threads": threads,
        "processes": processes,
        "overwrite": overwrite,
    }
    if dry_run:
        _dry_run(resolved, how)
        return
    from nmtdeep.training.finish import finish
    from nmtdeep.training.loop import train as run_training

    outcome = run_training(resolved, **how, quiet=quiet)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
    if not outcome.reason:  # a process that torchrun started to help
        return
    finish(resolved, data=data, run=how["out"], device=how["device"], final_scores=final_scores)


def _recipe_and_overrides(
    config: str | None, recipe: str | None, overrides: list[str], out: Path | None
) -> tuple[str, list[str]]:
    """The recipe's name or file, and the overrides among the positional arguments.

    With --config, all of them are overrides; so they are where the run in `out` has a recipe of its
    own and the first one is KEY=VALUE, or there is none.
    """
    words = [*([recipe] if recipe is not None else []), *overrides]
    if config is not None:
        return config, words
    if words and ("=" not in words[0] or Path(words[0]).exists()):
        return words[0], words[1:]
    if out is not None and (out / "config.yaml").is_file():
        return str(out / "config.yaml"), words
    raise UserError(
        "a recipe is missing: give a name (`nmtdeep recipes list`) or a file; only a run that has "
        "begun goes on without one"
    )


def _of_languages(data: Path, name: str, changes: list[str]) -> Recipe:
    """The recipe, where it names no languages with those of the data directory."""
    from nmtdeep.config.load import load_recipe, resolve
    from nmtdeep.data.corpus import DataDirectory

    found = resolve(name, changes)
    languages = zip(("source", "target"), DataDirectory.open(data).languages, strict=True)
    missing = [
        f"text.{side}={language}"
        for side, language in languages
        if found.origin(("text", side)) == "default"
    ]
    return load_recipe(name, [*changes, *missing]) if missing else found.recipe


def _dry_run(recipe: Recipe, how: dict[str, Any]) -> None:
    from nmtdeep.config.render import dump
    from nmtdeep.training.dry_run import dry_run

    said = list(dry_run(recipe, **how))
    typer.echo(dump(recipe))
    for one in said:
        typer.echo(one)
