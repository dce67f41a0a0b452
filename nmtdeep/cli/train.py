"""`nmtdeep train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nmtdeep.cli import completion
from nmtdeep.cli.choices import Verbose
from nmtdeep.errors import UserError

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
            help="A name (nmtdeep recipes list) or a file.  [required]",
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
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    verbose: Verbose = False,
) -> None:
    """Train a model, or go on where an interrupted training stopped.

    The same command again resumes exactly: killed and resumed gives the numbers of an uninterrupted
    training.
    """
    flags = dict(locals())
    from nmtdeep.config.load import load_recipe

    name, changes = _recipe_and_overrides(config, recipe, overrides or [])
    precision = "bf16" if bf16 else "fp16" if fp16 else precision
    flags["precision"] = precision
    changes += [
        f"{key}={flags[flag]}" for flag, key in SHORT_CUTS.items() if flags[flag] is not None
    ]
    resolved = load_recipe(name, changes)
    if data is None:
        raise UserError("--data is missing: give the directory that `nmtdeep preprocess` wrote")
    if dry_run:
        _dry_run(resolved, data, "cpu" if cpu else device, processes)
        return
    if out is None:
        raise UserError("--out is missing: give a directory for the run")
    chosen = "cpu" if cpu else device
    from nmtdeep.training.finish import finish
    from nmtdeep.training.loop import train as run_training

    outcome = run_training(
        resolved,
        data=data,
        out=out,
        device=chosen,
        threads=threads,
        processes=processes,
        quiet=quiet,
        overwrite=overwrite,
    )
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
    if not outcome.reason:  # a process that torchrun started to help
        return
    finish(resolved, data=data, run=out, device=chosen)


def _recipe_and_overrides(
    config: str | None, recipe: str | None, overrides: list[str]
) -> tuple[str, list[str]]:
    """With --config, the positional argument is an override too."""
    if config is None:
        if recipe is None:
            raise UserError("a recipe is missing: see `nmtdeep recipes list`, or give a file")
        return recipe, overrides
    return config, [*([recipe] if recipe is not None else []), *overrides]


def _dry_run(recipe: Any, data: Path, device: str, processes: int) -> None:
    import torch

    from nmtdeep.config.load import dump
    from nmtdeep.data.corpus import DataDirectory
    from nmtdeep.decoding.settings import resolve_device
    from nmtdeep.model.build import build
    from nmtdeep.training.size import check_training_size
    from nmtdeep.training.state import Progress
    from nmtdeep.training.summary import opening
    from nmtdeep.training.update import resolve_precision

    corpora = DataDirectory.open(data)
    place = resolve_device(device)
    check_training_size(recipe, corpora, place, processes)
    with torch.device("meta"):
        model = build(
            recipe.at_stage(0).model,
            source_types=len(corpora.pipeline.source.vocabulary),
            target_types=len(corpora.pipeline.target.vocabulary),
        )
    dtype = resolve_precision(recipe.training.precision, place)
    typer.echo(dump(recipe))
    first = recipe.at_stage(0)
    typer.echo(opening(first, corpora, model, place, dtype, Progress(), whole=recipe))
