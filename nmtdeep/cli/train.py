"""`nmtdeep train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from nmtdeep.cli import completion
from nmtdeep.cli.options import (
    Data,
    Device,
    Overrides,
    Quiet,
    Threads,
    Verify,
    collected,
    flag,
    option,
)
from nmtdeep.errors import UserError

if TYPE_CHECKING:
    from nmtdeep.config import Recipe

# Flags for recipe values: each with its key and its help.
FLAGS = {
    "max_updates": ("training.max_updates", "Stop after this many updates."),
    "max_epochs": ("training.max_epochs", "Stop after this many epochs."),
    "patience": (
        "training.validation.patience",
        "Stop after this many validations without a better one; 0: never.",
    ),
    "max_tokens": ("training.batches.max_tokens", "Padded tokens that one device holds at once."),
    "tokens_per_update": (
        "training.batches.tokens_per_update",
        "Padded tokens of one update, over all devices.",
    ),
    "lr": ("training.schedule.lr", "Peak learning rate."),
    "warmup_updates": ("training.schedule.warmup_updates", "Updates until the peak."),
    "clip_norm": ("training.clip_norm", "Largest gradient norm; 0: no clipping."),
    "label_smoothing": (
        "training.label_smoothing",
        "Probability taken from the target token and spread over all tokens.",
    ),
    "seed": ("training.seed", "Random seed for initialization, data order and dropout."),
    "precision": ("training.precision", "Number format: auto, bf16, fp16 or fp32."),
    "log_interval": ("training.log_every", "Updates between log lines."),
}
OPTIONS = [
    option(
        name,
        Annotated[
            str | None,
            Option(flag(name), metavar="VALUE", help=text, rich_help_panel="Recipe values"),
        ],
    )
    for name, (_, text) in FLAGS.items()
]


def _overrides(given: dict[str, str | None]) -> list[str]:
    """The values that were given, as overrides of the recipe."""
    return [f"{FLAGS[name][0]}={value}" for name, value in given.items() if value is not None]


@collected("changes", OPTIONS, _overrides)
def train(
    *,
    recipe: str | None = Argument(
        None,
        metavar="RECIPE",
        help="A recipe's name (nmtdeep recipes list) or file; none to resume a run.",
        autocompletion=completion.recipes,
    ),
    overrides: Overrides = None,
    data: Data,
    out: Path | None = Option(
        None, help="Run directory; an interrupted run is resumed.  [required]"
    ),
    dry_run: bool = Option(
        False, "--dry-run", help="Print config, parameters and memory; train nothing."
    ),
    overwrite: bool = Option(
        False, "--overwrite", help="Start from the beginning: delete the training in --out."
    ),
    final_scores: bool | None = Option(
        None,
        help="Translate and score the validation and test sets after the last update.",
        show_default="only if the model has learned something",
    ),
    quiet: Quiet = False,
    device: Device = "auto",
    threads: Threads = None,
    verify: Verify = True,
    processes: int = Option(
        1,
        min=1,
        help="Number of processes that train together: one per GPU, or sharing CPU threads.",
        rich_help_panel="Machine",
    ),
    changes: list[str],
) -> None:
    """Train a model, or resume an interrupted training.

    The same command again resumes exactly: killed and resumed gives the numbers of an uninterrupted
    training.
    """
    name, more = _recipe_and_overrides(recipe, overrides or [], out)
    resolved = _with_languages(data, name, more + changes)
    if out is None and not dry_run:
        raise UserError("is missing", where="--out", hint="give a directory for the run")
    how: dict[str, Any] = {
        "data": data,
        "out": out,
        "device": device,
        "threads": threads,
        "processes": processes,
        "overwrite": overwrite,
        "verify": verify,
    }
    if dry_run:
        from nmtdeep.config.render import dump
        from nmtdeep.training.opening import dry_run as plan

        lines = list(plan(resolved, **how))
        typer.echo("\n".join([dump(resolved), *lines]))
        return
    from nmtdeep.training.finish import finish
    from nmtdeep.training.loop import train as run_training

    outcome = run_training(resolved, **how, quiet=quiet)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)
    if outcome.rank == 0:  # of the ranks that torchrun started
        finish(resolved, data=data, run=how["out"], device=device, final_scores=final_scores)


def _recipe_and_overrides(
    recipe: str | None, overrides: list[str], out: Path | None
) -> tuple[str, list[str]]:
    """The recipe's name or file, and the overrides among the positional arguments.

    The run in `out` has a recipe of its own: if the first argument is KEY=VALUE, or there is none,
    all of them are overrides of it.
    """
    words = [*([] if recipe is None else [recipe]), *overrides]
    if words and ("=" not in words[0] or Path(words[0]).exists()):
        return words[0], words[1:]
    if out is not None and (out / "config.yaml").is_file():
        return str(out / "config.yaml"), words
    raise UserError(
        "a recipe is missing",
        hint="give a name (`nmtdeep recipes list`) or a file; only a resumed run needs none",
    )


def _with_languages(data: Path, name: str, changes: list[str]) -> Recipe:
    """The recipe; languages that it does not name are those of the data directory."""
    from nmtdeep.config.load import load_recipe, resolve
    from nmtdeep.data.corpus import DataDirectory

    resolved = resolve(name, changes)
    languages = zip(
        ("source", "target"), DataDirectory.open(data, verify=False).languages, strict=True
    )
    missing = [
        f"text.{side}={language}"
        for side, language in languages
        if resolved.origin(("text", side)) == "default"
    ]
    return load_recipe(name, [*changes, *missing]) if missing else resolved.recipe
