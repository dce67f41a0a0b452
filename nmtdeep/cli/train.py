"""`nmtdeep train`, and the commands that make a run or a checkpoint from others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmtdeep.cli.options import (
    Bundle,
    Data,
    Device,
    Out,
    Overrides,
    Overwrite,
    Quiet,
    Run,
    Threads,
    Verify,
    Whole,
    as_typed,
    option_of,
    recipe_argument,
)
from nmtdeep.config.section import variants
from nmtdeep.config.training import Training
from nmtdeep.errors import UserError
from nmtdeep.files import check_place
from nmtdeep.units import counted

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from nmtdeep.config.recipe import Recipe

# Keys of the section `training` that have a flag of the same name.
FLAGS = {
    key.rpartition(".")[2]: key
    for key in (
        "max_updates",
        "max_epochs",
        "validation.patience",
        "batches.max_tokens",
        "batches.tokens_per_update",
        "schedule.lr",
        "schedule.warmup_updates",
        "clip_norm",
        "label_smoothing",
        "seed",
        "precision",
        "log_every",
    )
}


def _field(key: str) -> FieldInfo:
    """The field of a key; the first variant of a section has all those with a flag."""
    *path, name = key.split(".")
    section: Any = Training
    for part in path:
        section = variants(section.model_fields[part].annotation)[0]
    return section.model_fields[name]


Changes = Annotated[
    list[str],
    Bundle(
        [
            option_of(name, _field(key), kind=str, panel="Recipe values", metavar="VALUE")
            for name, key in FLAGS.items()
        ],
        lambda given: [
            f"training.{FLAGS[name]}={value}" for name, value in given.items() if value is not None
        ],
    ),
]


def train(
    recipe: Annotated[str | None, recipe_argument("RECIPE")] = None,
    overrides: Overrides = None,
    *,
    data: Data,
    out: Out | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    final_scores: bool | None = None,
    quiet: Quiet = False,
    device: Device = "auto",
    threads: Threads = None,
    verify: Verify = True,
    processes: Whole = 1,
    changes: Changes,
) -> None:
    """Train a model, or resume an interrupted training.

    The same command again resumes exactly: killed and resumed gives the numbers of an uninterrupted
    training.

    Args:
        recipe: A recipe's name (nmtdeep recipes list) or file; none to resume a run.
        out: Run directory; an interrupted run is resumed.  [required]
        dry_run: Print config, parameters and memory; train nothing.
        overwrite: Start from the beginning: delete the training in --out.
        final_scores: Translate and score the validation and test sets after the last update.
            Default: only if the model has learned something.
        processes: Number of processes that train together: one per GPU, or sharing CPU threads.
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

        typer.echo("\n".join([dump(resolved), *plan(resolved, **how)]))
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
    hint = "give a name (`nmtdeep recipes list`) or a file; only a resumed run needs none"
    raise UserError("a recipe is missing", hint=hint)


def _with_languages(data: Path, name: str, changes: list[str]) -> Recipe:
    """The recipe; languages that it does not name are those of the data directory."""
    from nmtdeep.config.load import resolve
    from nmtdeep.data.corpus import DataDirectory

    resolved = resolve(name, changes)
    languages = DataDirectory.open(data, verify=False).languages
    missing = [
        f"text.{side}={language}"
        for side, language in zip(("source", "target"), languages, strict=True)
        if resolved.origin(("text", side)) == "default"
    ]
    return resolve(name, [*changes, *missing]).recipe


def grow(
    source: Run,
    *,
    layers: Whole,
    out: Out,
    stack: Literal["encoder", "decoder", "both"] = "encoder",
    strategy: Literal[
        "copy-top-group", "copy-top-layer", "interpolate", "stack-all", "random"
    ] = "copy-top-group",
    restart_lr: bool = True,
    freeze_copied: bool = False,
) -> None:
    """Make a trained model deeper; the new run can be trained on and translates at once.

    Train it on with its own recipe: nmtdeep train --data DIR --out OUT

    Args:
        layers: Number of layers of the deeper stack.
        out: Run directory of the deeper model.
        stack: Stack that becomes deeper.
        strategy: Where the weights of new layers come from.
        restart_lr: Start the learning rate from its peak again, or continue it.
        freeze_copied: Train only the new layers of the stack.
    """
    from nmtdeep.growing import grow as grow_run

    if source.resolve() == out.resolve():
        raise UserError("is the run that grows", where=out, hint="choose another --out")
    grown = grow_run(
        source,
        out=out,
        encoder=None if stack == "decoder" else layers,
        decoder=None if stack == "encoder" else layers,
        strategy=strategy.replace("-", "_"),  # type: ignore[arg-type]
        restart_lr=restart_lr,
        freeze_copied=freeze_copied,
    )
    typer.echo(f"{grown.checkpoint}: grown from {as_typed(source, grown.source)}")
    for side, sources in grown.layers.items():
        typer.echo(f"{side}: {_shown(sources)}")
    if grown.more:
        typer.echo(
            "the original training had reached its end: raise the limit to train on, for example "
            f"{grown.more}"
        )
    typer.echo(f"train on with: nmtdeep train --data DIR --out {out} {grown.more}".rstrip())


def _shown(sources: Sequence[int | None]) -> str:
    """Layers counted from 1, such as `12 layers from 1 2 3 4 5 6 1 2 3 4 5 6`."""
    if None not in sources and len(set(sources)) == len(sources):
        return f"{counted(len(sources), 'layer')}, as before"
    names = ["new" if source is None else str(source + 1) for source in sources]
    return f"{len(sources)} layers from {' '.join(names)}"


def average_checkpoints(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN|CHECKPOINT")],
    *,
    last: Whole | None = None,
    best: Whole | None = None,
    output: Out | None = None,
    overwrite: Overwrite = False,
) -> None:
    """Average the weights of several checkpoints of one run into a new checkpoint.

    Args:
        paths: A run directory with --last or --best, or the checkpoints themselves.
        last: Number of newest checkpoints to average.
        best: Number of best validated checkpoints to average.
        output: Checkpoint to write. Default: RUN/checkpoint_average.
    """
    from nmtdeep import averaging, checkpoint

    if last and best:
        raise UserError("exclude each other", where="--last and --best", hint="give one")
    run, inputs = paths[0], paths
    if last or best:
        if len(paths) > 1:
            raise UserError("take one run directory", where="--last and --best")
        inputs = averaging.newest(run, last) if last else averaging.best(run, best or 1)
    elif output is None:
        hint = "give --output; or a run with --last N"
        raise UserError("checkpoints that are named one by one need an --output", hint=hint)
    out = output or run / checkpoint.AVERAGE
    check_place(out, "--output")
    if out.exists() and not overwrite:
        raise UserError("exists", where=out, hint="add --overwrite, or choose another --output")
    averaging.check_out(out, inputs)
    averaging.average(inputs, out)
    typer.echo(f"{out}: mean of {', '.join(path.name for path in inputs)}")


def demo(
    *, out: Out = Path("nmtdeep-demo"), device: Device = "auto", threads: Threads = None
) -> None:
    """Train a deep model on a small corpus that ships with the program, in minutes.

    Args:
        out: Directory for data and run.
    """
    check_place(out, "--out")
    from nmtdeep.demo.journey import run_demo

    run_demo(out, threads=threads, device=device)
