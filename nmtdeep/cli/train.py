"""`nmtdeep train`."""

from __future__ import annotations

import os
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from nmtdeep.cli import options
from nmtdeep.cli.command import Bundle, option
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.stages import StartFrom
from nmtdeep.config.training import Training
from nmtdeep.config.variant import variants
from nmtdeep.errors import UserError

# Keys of the section `training` that have a flag, whose name is the last word.
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
VALUE = Option(metavar="VALUE")
FOR_MINUTES = (
    "Train as many updates as fit into this time; their number is fixed after 50, from their speed."
)


def _flag(key: str) -> Parameter:
    """The option for a key; the first variant of a section has all fields with a flag."""
    *above, name = key.split(".")
    section: Any = Training
    for part in above:
        section = variants(section.model_fields[part].annotation)[0]
    return option(name, str | None, VALUE, options.sentence(section.model_fields[name]))


def _overrides(*, minutes: str | None, **given: str | None) -> list[str]:
    changes = []
    if minutes is not None:
        if given["max_updates"] is not None:
            hint = "pass training.max_minutes to end such a training by the clock"
            raise UserError("cannot be combined with --max-updates", where="--minutes", hint=hint)
        changes = [f"training.max_minutes={minutes}", "training.max_updates=auto"]
    for key in KEYS:
        value = given[key.rpartition(".")[2]]
        if value is not None:
            changes.append(f"training.{key}={value}")
    return changes


FLAGS = [option("minutes", str | None, VALUE, FOR_MINUTES), *map(_flag, KEYS)]
Changes = Annotated[list[str], Bundle(FLAGS, _overrides)]
WORDS = Argument(metavar="RECIPE", autocompletion=options.complete_subject)
COMPILE = Option("--compile/--no-compile")


def train(
    recipe: Annotated[str | None, WORDS] = None,
    overrides: options.Overrides = None,
    *,
    data: options.Data,
    out: options.OptionalOut = None,
    dry_run: bool = False,
    estimate: bool = False,
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
        estimate: With --dry-run: also print updates and hours, from a trial of at most 50 updates.
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
    if estimate and (not dry_run or processes > 1):
        hint = "add --dry-run" if not dry_run else "leave out --processes"
        raise UserError("estimates a training by one process", where="--estimate", hint=hint)
    if not compile_layers:  # in the processes that are started, too
        os.environ["TORCH_COMPILE_DISABLE"] = "1"
    name, more = _recipe_and_overrides(recipe, overrides or [], out, source)
    for part in freeze or ():  # another word is an unknown key
        changes.append(f"training.frozen.{part}={'true' if part == 'embeddings' else 'all'}")
    changes += [f"training.log_to=[{', '.join(log_to)}]"] if log_to else []
    from nmtdeep.config.load import read_config
    from nmtdeep.data.corpus import DataDirectory

    corpora = DataDirectory.open(data, verify=False)
    text = corpora.pipeline.config
    if out is not None and not overwrite and (out / "config.yaml").is_file():  # it is resumed
        text = read_config(out).text
    resolved, adopted = _with_text(name, more + changes, text.model_dump(mode="json"))
    if adopted and not quiet and os.environ.get("RANK", "0") == "0":
        typer.echo(f"section text as of --data: {'; '.join(adopted)}")
    if source is not None:  # no override, which would keep the SHA-256 of the old one
        resolved = resolved.with_training(start_from=StartFrom(path=str(source)))
    from nmtdeep.training.setup import TrainingJob

    job = TrainingJob(resolved, corpora, out, device, threads, processes, overwrite, verify)
    if dry_run:
        from nmtdeep.config.render import display
        from nmtdeep.tables import show
        from nmtdeep.training.opening import dry_run as plan

        messages = plan(job)
        typer.echo(display(resolved))
        show(*messages)
        if estimate:
            from nmtdeep.training.estimate import estimate as hours

            typer.echo(hours(job))
        return
    if out is None:
        raise UserError("is missing", where="--out", hint="pass a directory for the run")
    options.prepare_training(threads)
    from nmtdeep.training.final_scores import finish
    from nmtdeep.training.loop import train as run_training

    stopped = run_training(job, quiet=quiet)
    if stopped:
        raise typer.Exit(128 + stopped)
    if stopped is not None:  # in rank 0 of those that torchrun started
        finish(resolved, data=corpora, run=out, device=device, final_scores=final_scores)


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
