"""Training: set the learning rate, train one update, log, validate, save; nothing else."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from nmtdeep.config import Recipe
from nmtdeep.config.training import Linear
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.scoring.warnings import subword_mark
from nmtdeep.training import stages
from nmtdeep.training.display import Display
from nmtdeep.training.distributed import Crew, Order
from nmtdeep.training.feed import check_batches, check_text, upcoming
from nmtdeep.training.helper import Start, Task, help_train
from nmtdeep.training.processes import Torchrun, crew_of, device_of, joined, own_threads
from nmtdeep.training.rehearsal import rehearse
from nmtdeep.training.run_directory import RunDirectory, open_run
from nmtdeep.training.sharding import check_sharding
from nmtdeep.training.signals import noted_signals
from nmtdeep.training.size import check_training_size
from nmtdeep.training.state import Progress
from nmtdeep.training.summary import opening
from nmtdeep.training.trainee import Trainee
from nmtdeep.training.update import resolve_precision
from nmtdeep.training.validation import Validator
from nmtdeep.units import counted, percent


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        reason: in words, for people; empty where a stage ended and the next one begins, and in
            processes that only helped.
        signal: number of the signal that asked it to leave, or 0.
    """

    progress: Progress
    reason: str
    signal: int = 0


def train(
    recipe: Recipe,
    *,
    data: Path,
    out: Path,
    device: str = "auto",
    threads: int | None = None,
    processes: int = 1,
    quiet: bool = False,
    overwrite: bool = False,
) -> Outcome:
    """Train, or go on training, the model of `recipe` on a preprocessed corpus.

    Args:
        recipe: the experiment; reopening a run needs the same model, text and batches.
        data: directory that `preprocess` wrote.
        out: run directory; an interrupted training there is continued exactly.
        device: auto, cpu, cuda or cuda:N.
        threads: CPU threads of all processes of this machine; None keeps torch's choice.
        processes: to be started here, each on its share of the threads or on its own GPU.
        quiet: no progress on the screen.
        overwrite: delete what a training left in `out` and start anew.

    Under torchrun this is one of its processes. The first one trains as ever, the others help it
    and end with an `Outcome` without a reason.

    Raises:
        UserError: for anything that the user can mend; checkpoints on disk stay whole.
    """
    told = Torchrun.here()
    if told and processes > 1:
        raise UserError(
            f"torchrun has started {told.size} processes: leave --processes out, or leave torchrun "
            "out"
        )
    if told is None:
        threads = threads or torch.get_num_threads()
        task = Task(recipe, data, out, device, threads, processes)
        place = device_of(device, rank=0, processes=processes)
        gather = partial(crew_of, processes, place, help_train, task)
        return _lead(task, place, processes, gather, quiet=quiet, overwrite=overwrite)
    task = Task(recipe, data, out, device, threads, told.local_size)
    place = device_of(device, rank=told.local_rank, processes=told.local_size)
    with joined(told, place) as crew:
        if crew.rank:
            help_train(crew, task)
            return Outcome(Progress(), "")
        return _lead(
            task, place, told.size, lambda: nullcontext(crew), quiet=quiet, overwrite=overwrite
        )


def _lead(
    task: Task,
    place: torch.device,
    processes: int,
    gather: Callable[[], AbstractContextManager[Crew]],
    *,
    quiet: bool,
    overwrite: bool,
) -> Outcome:
    """What the first process does; `gather` brings the others, `processes` with this one."""
    recipe, corpora = task.recipe, DataDirectory.open(task.data)
    check(recipe, corpora, place, processes)
    with open_run(task.out, recipe, corpora.pipeline, overwrite=overwrite) as run:
        newest, progress = run.newest(), run.progress()
        lost = run.repair(progress)
        with (
            Display(task.out, recipe.training, quiet=quiet) as display,
            noted_signals() as asked,
            own_threads(task.threads, task.processes),
            gather() as crew,
        ):
            reason = finished(recipe, progress)
            if reason:
                crew.tell("")
                display.say(nothing_to_do(recipe, progress))
                return Outcome(progress, reason)
            crew.tell(Start.of(newest, task.data).to_json())
            trainee = Trainee(recipe.at_stage(progress.stage), corpora, place, newest, crew)
            display.say(
                opening(
                    trainee.recipe,
                    corpora,
                    trainee.model,
                    place,
                    trainee.dtype,
                    progress,
                    whole=recipe,
                    processes=processes,
                )
            )
            for change in run.changes:
                display.say(f"changed: {change}")
            if mark := subword_mark(corpora.references("valid")):
                display.say(
                    f"warning: there are subwords ({mark}) in the validation text, so that every "
                    "score of this training counts pieces of words"
                )
            for what in lost:
                display.say(what)
            run.drop_results()
            return _stage_by_stage(corpora, run, trainee, progress, display, asked, crew)


def _stage_by_stage(
    data: DataDirectory,
    run: RunDirectory,
    trainee: Trainee,
    progress: Progress,
    display: Display,
    asked: list[int],
    crew: Crew,
) -> Outcome:
    """Train until the end, growing in between; one stage is the usual case."""
    while True:
        if stages.is_over(run.recipe, progress):
            progress = stages.begin_next(run.recipe, progress)
            trainee = trainee.deeper(run.recipe.at_stage(progress.stage), data)
            display.say(stages.announcement(run.recipe, progress))
        outcome = _train(data, run, trainee, progress, display, asked, crew)
        if outcome.reason:
            return outcome
        progress = outcome.progress


def _train(
    data: DataDirectory,
    run: RunDirectory,
    trainee: Trainee,
    progress: Progress,
    display: Display,
    asked: list[int],
    crew: Crew,
) -> Outcome:
    """The loop of one stage."""
    recipe, settings = run.recipe, run.recipe.training
    validate = Validator(data, trainee.recipe, dtype=trainee.dtype)
    started = time.perf_counter() - progress.seconds
    rehearse(trainee, progress.place)
    display.restart()
    for coming in upcoming(trainee.recipe, data, run.path, progress, trainee.device, crew):
        result = trainee.train(coming.share, progress)
        progress = replace(
            progress.updated(coming.place, bad=result.is_bad),
            seconds=time.perf_counter() - started,
            target_tokens=progress.target_tokens + result.target_tokens,
            scaler=trainee.scaler.state_dict(),
        )
        display.updated(progress, result, waited=coming.waited)
        if trainee.warning:
            display.say(trainee.warning)
        if progress.update % settings.log_every == 0:
            lr = trainee.lr(progress.update, progress.schedule_offset)
            display.logged(progress, lr=lr, device=trainee.device)
        reason, over = finished(recipe, progress), stages.is_over(recipe, progress)
        if progress.update % settings.validation.every == 0 or reason or over:
            progress = _validated(validate, trainee.whole(), recipe, progress, display)
            display.restart()
            reason = reason or finished(recipe, progress)
        wanted = [*asked, *crew.asked]  # a signal after this line is for the next update
        planned = progress.update % settings.checkpoints.every == 0
        # Weights that give no finite numbers do not take the place of good ones.
        planned = planned and not progress.bad_updates
        planned = planned or progress.is_best or bool(reason) or over
        if planned or wanted:
            trainee.save(run, progress, planned=planned)
            display.restart()
        if crew.agree(Order.LEAVE if reason or wanted else Order.GO_ON) == Order.LEAVE:
            lr = trainee.lr(progress.update, progress.schedule_offset)
            return _leave(recipe, progress, reason, wanted, lr, display)
        if over:
            return Outcome(progress, "")
    raise AssertionError("epochs never end")


def _leave(
    recipe: Recipe, progress: Progress, reason: str, asked: list[int], lr: float, display: Display
) -> Outcome:
    """Say why it ends here, and if a linear schedule ends far above zero (`lr`)."""
    if reason:
        display.say(f"done after {counted(progress.update, 'update')}: {reason}")
        schedule = recipe.training.schedule
        begun = schedule.warmup_updates + progress.schedule_offset
        falling = begun < progress.update < recipe.training.max_updates
        if isinstance(schedule, Linear) and falling and lr > schedule.lr / 10:
            share = percent(lr / schedule.lr, 0)
            display.say(
                f"warning: the learning rate was still at {share} of its peak: it falls to zero "
                f"over {recipe.training.max_updates} updates; a training of this length does "
                f"better with --max-updates {progress.update}"
            )
        return Outcome(progress, reason)
    reason = f"asked to leave by {signal.Signals(asked[0]).name}"
    display.say(f"{reason}: saved at update {progress.update}; the same command goes on from there")
    return Outcome(progress, reason, asked[0])


def _validated(
    validate: Validator, model: Transformer, recipe: Recipe, progress: Progress, display: Display
) -> Progress:
    """Measure, and note whether it is the best so far."""
    began = time.perf_counter()
    found = validate(model)
    progress = progress.validated(found.score(recipe.training.validation.best_by))
    display.validated(
        progress.update,
        progress.current_epoch,
        found,
        is_best=progress.is_best,
        seconds=time.perf_counter() - began,
    )
    return progress


def check(recipe: Recipe, data: DataDirectory, place: torch.device, processes: int) -> None:
    """Check what can be checked before the run directory is opened.

    Raises:
        UserError: if recipe, corpus, device and number of processes do not go together.
    """
    check_text(recipe, data)
    check_batches(recipe, data, processes)
    check_sharding(recipe, processes)
    check_training_size(recipe, data, place, processes)
    resolve_precision(recipe.training.precision, place)


def nothing_to_do(recipe: Recipe, progress: Progress) -> str:
    """What a training says whose end was reached before it began."""
    total = recipe.training.max_updates
    why = "" if progress.update >= total else f" ({finished(recipe, progress)})"
    return f"already at update {progress.update} of {total}: nothing to do{why}"


def finished(recipe: Recipe, progress: Progress) -> str:
    """Why the training is over; empty if it is not."""
    settings = recipe.training
    patience = settings.validation.patience
    if progress.update >= settings.max_updates:
        return f"max_updates {settings.max_updates} reached"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"max_epochs {settings.max_epochs} reached"
    if stages.are_done(recipe, progress):
        return f"all {len(settings.stages)} stages done"
    if settings.max_minutes is not None and progress.seconds >= settings.max_minutes * 60:
        return f"max_minutes {settings.max_minutes:g} reached"
    if patience and progress.stale >= patience:
        return f"no better validation in {patience}, best at update {progress.best_update}"
    return ""
