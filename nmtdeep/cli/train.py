"""`nmtdeep train`, and the commands that make a run or a checkpoint from others."""

from __future__ import annotations

import os
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli import options
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.stages import Growth, StartFrom
from nmtdeep.config.training import Training
from nmtdeep.config.values import validated
from nmtdeep.config.variant import variants
from nmtdeep.errors import UserError
from nmtdeep.files import check_place
from nmtdeep.units import counted

if TYPE_CHECKING:
    from nmtdeep.data.corpus import DataDirectory

# Keys of the section `training` that have a flag of the same name.
KEYS = (
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
FLAGS = {key.rpartition(".")[2]: key for key in KEYS}
VALUE = Option(metavar="VALUE")


def _flag(name: str, key: str) -> Parameter:
    """The option for a key; the first variant of a section has all fields with a flag."""
    section: Any = Training
    for part in key.split(".")[:-1]:
        section = variants(section.model_fields[part].annotation)[0]
    return options.option(name, str | None, VALUE, options.sentence(section.model_fields[name]))


def _overrides(*, minutes: str | None, **given: str | None) -> list[str]:
    if minutes is not None and given["max_updates"] is not None:
        hint = "pass training.max_minutes to end such a training by the clock"
        raise UserError("excludes --max-updates", where="--minutes", hint=hint)
    fitted = [] if minutes is None else [f"training.max_minutes={minutes}", AUTO]
    changes = ((FLAGS[name], value) for name, value in given.items() if value is not None)
    return [*fitted, *(f"training.{key}={value}" for key, value in changes)]


FOR_MINUTES = (
    "Train as many updates as fit into this time; their number is fixed after 50, from their speed."
)
MINUTES = options.option("minutes", str | None, VALUE, FOR_MINUTES)
AUTO = "training.max_updates=auto"
COMPILE = Option("--compile/--no-compile")
RECIPE_VALUES = [MINUTES, *(_flag(*item) for item in FLAGS.items())]
Changes = Annotated[list[str], options.Bundle(RECIPE_VALUES, _overrides)]


def train(
    recipe: Annotated[str | None, options.recipe_argument("RECIPE")] = None,
    overrides: options.Overrides = None,
    *,
    data: options.Data,
    out: options.OptionalOut = None,
    dry_run: bool = False,
    overwrite: bool = False,
    final_scores: bool | None = None,
    quiet: options.Quiet = False,
    source: Annotated[Path | None, Option("--from", metavar="RUN|CHECKPOINT")] = None,
    freeze: Annotated[list[str] | None, Option(metavar="PART")] = None,
    changes: Changes,
    device: str = "auto",
    threads: options.Threads = None,
    processes: Annotated[int, Option(min=1)] = 1,
    log_to: Annotated[list[str] | None, Option(metavar="NAME")] = None,
    compile_layers: Annotated[bool, COMPILE] = True,
    verify: options.Verify = True,
) -> None:
    """Train a model, fine-tune one, or resume an interrupted training.

    Run the same command again to resume: the result is the same as without the interruption.

    Args:
        recipe: A recipe's name (nmtdeep recipes list) or file. Default: that of the run in --out,
            or that of --from.
        out: Run directory; an interrupted run is resumed. Required, unless --dry-run.
        dry_run: Print config and parameters; train nothing.
        overwrite: Start from the beginning: delete the training in --out.
        final_scores: Translate and score the validation and test sets after the last update.
            Default: only if the model has learned something.
        source: Start from the weights of this run or checkpoint (fine-tuning).
        freeze: Part of the model that keeps its weights: encoder, decoder or embeddings.
        device: Device: auto, cpu, cuda or cuda:N.
        processes: Number of processes that train together: one per GPU, or sharing CPU threads.
        log_to: Also send metrics to tensorboard or wandb; replaces the recipe's training.log_to.
        compile_layers: Compile the layers for a GPU at the start; later updates are faster.
    """
    if not compile_layers:  # in the processes that are started, too
        os.environ["TORCH_COMPILE_DISABLE"] = "1"
    name, more = _recipe_and_overrides(recipe, overrides or [], out, source)
    for part in freeze or ():  # another word is an unknown key
        changes.append(f"training.frozen.{part}={'true' if part == 'embeddings' else 'all'}")
    changes += [f"training.log_to=[{', '.join(log_to)}]"] if log_to else []
    from nmtdeep.data.corpus import DataDirectory

    corpora = DataDirectory.open(data, verify=False)
    text = _text_of(corpora, None if overwrite else out)
    resolved, adopted = _with_text(name, more + changes, text)
    if adopted and not quiet and os.environ.get("RANK", "0") == "0":
        typer.echo(f"section text as of --data: {'; '.join(adopted)}")
    if source is not None:  # no override, which would keep the SHA-256 of the old one
        resolved = resolved.with_training(start_from=StartFrom(path=str(source)))
    if out is None and not dry_run:
        raise UserError("is missing", where="--out", hint="pass a directory for the run")
    if dry_run or out is None:
        from nmtdeep.config.render import shown
        from nmtdeep.training.opening import dry_run as plan

        lines = plan(
            resolved,
            data=corpora,
            out=out,
            device=device,
            threads=threads,
            processes=processes,
            overwrite=overwrite,
            verify=verify,
        )
        typer.echo("\n".join([shown(resolved), *lines]))
        return
    options.prepare_training(threads)
    from nmtdeep.training.final_scores import finish
    from nmtdeep.training.loop import train as run_training

    stopped = run_training(
        resolved,
        data=corpora,
        out=out,
        device=device,
        threads=threads,
        processes=processes,
        quiet=quiet,
        overwrite=overwrite,
        verify=verify,
    )
    if stopped:
        raise typer.Exit(128 + stopped)
    if stopped is not None:  # in rank 0 of those that torchrun started
        finish(resolved, data=corpora, run=out, device=device, final_scores=final_scores)


def _text_of(data: DataDirectory, out: Path | None) -> dict[str, Any]:
    """The section `text` of the run that is resumed, or else of the data directory."""
    if out is not None and (out / "config.yaml").is_file():
        from nmtdeep.config.load import read_config

        return read_config(out).text.model_dump(mode="json")
    return data.pipeline.config.model_dump(mode="json")


def _with_text(name: str, overrides: list[str], text: dict[str, Any]) -> tuple[Recipe, list[str]]:
    """The recipe with this section `text` below the overrides, and what it says else by itself."""
    from nmtdeep.config.load import resolve
    from nmtdeep.config.render import differences

    own = resolve(name, [each for each in overrides if not each.startswith("text.")])
    changes = differences(own.recipe.text.model_dump(mode="json"), text, "text")
    said = [each for each in changes if own.origin((*each.split(":")[0].split("."),)) != "default"]
    return resolve(name, overrides, text).recipe, said


def _recipe_and_overrides(
    recipe: str | None, overrides: list[str], out: Path | None, source: Path | None
) -> tuple[str, list[str]]:
    """The recipe's name or file, and the overrides among the positional arguments.

    The run in `out` has a recipe of its own, and so has the one to start from: if the first
    argument is KEY=VALUE or missing, all of them are overrides of it.
    """
    words = [*filter(None, [recipe]), *overrides]
    if words and ("=" not in words[0] or Path(words[0]).exists()):
        return words[0], words[1:]
    if out is not None and (out / "config.yaml").is_file():
        return str(out / "config.yaml"), words
    if source is not None:
        from nmtdeep import checkpoint

        return str(checkpoint.locate(source) / "config.yaml"), words
    hint = "pass a name (`nmtdeep recipes list`) or a file; a run to resume or --from has its own"
    raise UserError("a recipe is missing", hint=hint)


def grow(
    source: options.Run,
    *,
    layers: options.Whole,
    out: options.Out,
    stack: Literal["encoder", "decoder", "both"] = "encoder",
    strategy: str = "copy_top_group",
    restart_lr: bool = True,
    freeze_copied: bool = False,
) -> None:
    """Make a trained model deeper; the new run can be trained on and translates at once.

    Continue training with its own recipe: nmtdeep train --data DIR --out OUT

    Args:
        layers: Number of layers of the deeper stack.
        out: Run directory of the deeper model.
        stack: Stack that becomes deeper.
        strategy: Source of the weights of new layers: copy_top_group, copy_top_layer, interpolate,
            stack_all or random, or a strategy of another package.
        restart_lr: Start the learning rate from its peak again, or continue it.
        freeze_copied: Train only the new layers of the stack.
    """
    from nmtdeep.growing import grow as grow_run

    name = strategy if "." in strategy else strategy.replace("-", "_")
    growth = validated(Growth, {"strategy": name}, spelled="--{}".format)
    grown = grow_run(
        source,
        out=out,
        encoder=None if stack == "decoder" else layers,
        decoder=None if stack == "encoder" else layers,
        strategy=growth.strategy,
        restart_lr=restart_lr,
        freeze_copied=freeze_copied,
    )
    for problem in grown.warnings:
        typer.echo(f"nmtdeep: warning: {problem}", err=True)
    typer.echo(f"{grown.checkpoint}: grown from {'/'.join(grown.source.parts[-2:])}")
    for side, layer_map in grown.layers.items():
        names = ("new" if layer is None else str(layer + 1) for layer in layer_map)
        typer.echo(f"{side}: {counted(len(layer_map), 'layer')} from {' '.join(names)}")
    if grown.more:
        typer.echo("the original training had reached its end; raise its limit:")
    typer.echo(
        f"continue training with: nmtdeep train --data DIR --out {out} {grown.more}".rstrip()
    )


def average_checkpoints(
    paths: Annotated[list[Path], Argument(metavar="RUN|CHECKPOINT")],
    *,
    last: options.OptionalWhole = None,
    best: options.OptionalWhole = None,
    output: options.OptionalOut = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Average the weights of several checkpoints of one run into a new checkpoint.

    Args:
        paths: A run directory with --last or --best, or the checkpoints themselves.
        last: Number of newest checkpoints to average.
        best: Number of best validated checkpoints to average.
        output: Checkpoint to write. Default: RUN/checkpoint_average.
    """
    from nmtdeep import averaging, checkpoint

    run, inputs = paths[0], paths
    if (last or best) and (len(paths) > 1 or (last and best)):
        what = "take one run directory, and exclude each other"
        raise UserError(what, where="--last and --best")
    if last or best:
        inputs = averaging.choose(run, last or best or 1, best=last is None)
    elif output is None:
        hint = "pass --output; or a run with --last N"
        raise UserError("checkpoints that are named one by one need an --output", hint=hint)
    out = output or run / checkpoint.AVERAGE
    checkpoint.check_free(out, overwrite=overwrite)
    averaging.average(inputs, out)
    typer.echo(f"{out}: mean of {', '.join(path.name for path in inputs)}")


def demo(
    *,
    out: options.Out = Path("nmtdeep-demo"),
    device: options.Device = "auto",
    threads: options.Threads = None,
) -> None:
    """Train a deep model on a small corpus that ships with the program, in minutes.

    Args:
        out: Directory for data and run.
    """
    check_place(out, "--out")
    options.prepare_training(threads)
    from nmtdeep.tools.demo.journey import run_demo

    run_demo(out, threads=threads, device=device)
