"""The training loop, which every rank runs; rank 0 writes and prints."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.devices import keep_compiled, kept_settings
from nmtdeep.errors import UserError
from nmtdeep.files import SUMS
from nmtdeep.training import stages
from nmtdeep.training.budget import Pace, continued
from nmtdeep.training.display import Display
from nmtdeep.training.feed import upcoming
from nmtdeep.training.launch import is_launched, join_ranks, launch, noted_signals, use_threads
from nmtdeep.training.memory import peak_memory
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.result import UpdateResult
from nmtdeep.training.run_directory import RunDirectory, open_run
from nmtdeep.training.setup import check, opening
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import Trainer
from nmtdeep.training.validation import validate
from nmtdeep.units import counted, size


@kept_settings()
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
    verify: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> int | None:
    """Train the model of `recipe` on a preprocessed corpus, or resume its training.

    Args:
        recipe: the experiment; a run is resumed with the same model, text and batches.
        data: directory that `preprocess` wrote.
        out: run directory; an interrupted training there is resumed exactly.
        device: auto, cpu, cuda or cuda:N.
        threads: CPU threads of all ranks of this machine; None keeps torch's choice.
        processes: ranks to start here, each on its share of the threads or on its own GPU.
        quiet: show no progress on the screen.
        overwrite: delete what a training left in `out` and start from the beginning.
        verify: compare the token files with their checksums, in one rank of each machine.
        clock: seconds since some moment; processes that are started here have the usual one.

    In a process that torchrun started, this is one of its ranks.

    Returns:
        Number of the signal that stopped the training, or 0; None in a rank other than 0.

    Raises:
        UserError: for anything that the user can fix; checkpoints on disk stay intact.
        SystemExit: in a rank of a launcher, if a signal was received.
    """
    if not is_launched() and processes > 1:
        use_threads(threads, 1)
        options: dict[str, Any] = {"overwrite": overwrite, "verify": verify, "quiet": quiet}
        options |= {"device": device, "threads": torch.get_num_threads()}
        return launch(processes, partial(train, recipe, data=data, out=out, **options))
    with noted_signals() as signals, join_ranks(device, threads, signals) as ranks:
        if processes not in (1, ranks.size):
            raise UserError(
                f"{processes}, but torchrun has started {ranks.size}",
                where="--processes",
                hint="omit --processes or torchrun",
            )
        corpora = _same_corpora(data, ranks, verify)
        check(recipe, corpora, ranks)
        with ExitStack() as opened:
            run = RunDirectory(out, recipe, corpora.pipeline)
            progress, newest = Progress(), ""
            if ranks.is_first:
                text, digest = corpora.pipeline, corpora.digest
                directory = open_run(out, recipe, text, overwrite=overwrite, corpus=digest)
                run = opened.enter_context(directory)
                if path := run.newest():
                    progress, newest = Progress.of(path), path.name
                run.repair(progress)
            progress, newest = ranks.broadcast((progress, newest))
            how: dict[str, Any] = {"quiet": quiet, "writes": ranks.is_first, "clock": clock}
            display = opened.enter_context(Display(out, recipe, **how))
            stopped = _train_run(run, corpora, progress, newest, display, signals, ranks)
    if is_launched() and (stopped or signals):
        # A launcher that has passed on a signal waits until its ranks have exited.
        raise SystemExit(128 + (stopped or signals[0]))
    return stopped if ranks.is_first else None


def _same_corpora(data: Path, ranks: Ranks, verify: bool) -> DataDirectory:
    """The data directory of this machine, if all ranks have the same corpora."""
    corpora = DataDirectory.open(data, verify=verify and ranks.rank % ranks.local_size == 0)
    sums = (data / SUMS).read_text(encoding="utf-8")
    if ranks.broadcast(sums) != sums:
        what, hint = "differs from the corpus of rank 0", "copy the data directory again"
        raise UserError(what, where=data, hint=hint)
    return corpora


def _train_run(
    run: RunDirectory,
    data: DataDirectory,
    progress: Progress,
    newest: str,
    display: Display,
    signals: Sequence[int],
    ranks: Ranks,
) -> int:
    """Train until the end, growing between stages; one stage is the usual case.

    Args:
        newest: name of the checkpoint to resume from; empty for a fresh model.

    Returns:
        Number of the signal that stopped the training, or 0.
    """
    recipe, path = run.recipe, run.path / newest if newest else None
    progress = continued(recipe.training, progress)
    if stages.stop_reason(recipe, progress):
        display.say(stages.nothing_to_do(recipe, progress))
        return 0
    said = partial(display.say, opening(recipe, data, ranks, progress))
    trainer = Trainer(recipe.at_stage(progress.stage), data, ranks, path, ready=said)
    for change in run.changes:
        display.say(f"changed: {change}")
    if ranks.is_first:
        run.drop_results()
    stopped = 0
    while not (stopped or stages.stop_reason(recipe, progress)):
        if stages.stage_ended(recipe, progress):
            progress = stages.next_stage(recipe, progress)
            stage = recipe.at_stage(progress.stage)
            if stages.keeps_model(recipe, progress.stage):
                trainer.recipe = stage
            else:
                trainer = trainer.grown(stage)
            display.say(stages.announcement(recipe, progress))
        progress, stopped = _train(run, trainer, progress, display, signals)
    if graphs := trainer.graphs():
        display.say(graphs)
    update = progress.update
    if stopped and not stages.stop_reason(recipe, progress):
        name = signal.Signals(stopped).name
        display.say(f"stopped by {name}, saved at update {update}; run the same command to resume")
        return stopped
    display.say(f"done after {counted(update, 'update')}: {stages.stop_reason(recipe, progress)}")
    if warning := stages.linear_not_finished(recipe, progress):
        display.say(warning)
    return 0


def _train(
    run: RunDirectory,
    trainer: Trainer,
    progress: Progress,
    display: Display,
    signals: Sequence[int],
) -> tuple[Progress, int]:
    """The loop of one stage. All decisions are functions of `progress`, the same in every rank.

    Returns:
        The progress at its end, and the number of the signal that stopped it, or 0.
    """
    recipe, settings, ranks = run.recipe, run.recipe.training, trainer.ranks
    started = display.clock() - progress.seconds
    _try_largest_batch(trainer, progress, display)
    display.restart()
    corpora = [trainer.data.corpus(name) for name in ("valid", trainer.data.training[0])]
    valid_tokens, epoch_tokens = (len(corpus.target.tokens) for corpus in corpora)
    pace = Pace(valid_tokens, epoch_tokens, display.clock)
    for coming in upcoming(trainer.recipe, trainer.data, progress, ranks):
        before = progress
        results = trainer.train(coming.share, progress)
        # Any rank may have received a signal; the time is that of rank 0's clock.
        seconds = (display.clock() - started) * ranks.is_first
        stopped, seconds = ranks.all_reduce_max(signals[0] if signals else 0, seconds)
        progress = replace(
            progress.after_update(coming.position),
            seconds=seconds,
            target_tokens=progress.target_tokens + coming.share.target_tokens,
            scaler=trainer.step.scaler.state_dict(),
        )
        progress = _noted(results, progress, display)
        display.waited(coming.waited)
        pace.lap("update", coming.share.target_tokens)
        if plan := pace.plan(settings, progress):
            plan = ranks.broadcast(plan)  # by rank 0's clock
            progress = replace(progress, plan=plan)
            fits = f"{plan.updates:,} updates fit into {plan.minutes:g} minutes"
            display.say(f"{fits}, and the training ends there")
            if warning := stages.low_peak(recipe, progress):
                display.say(f"warning: {warning}")
        reason, over = stages.stop_reason(recipe, progress), stages.stage_ended(recipe, progress)
        intervals = settings.log_every, settings.validation.every, settings.checkpoints.every
        logs, validates, planned = (progress.completes(each, before) for each in intervals)
        validates = validates or bool(reason) or over
        if logs or validates or planned or stopped:
            progress = _noted(trainer.finish(progress), progress, display)
            display.recorded(progress, device=ranks.device)
        if validates:
            progress = _validated(trainer, progress, display)
            pace.lap("validation")
            reason = reason or stages.stop_reason(recipe, progress)
        planned = planned and not progress.bad_updates  # never replace a good checkpoint
        planned = planned or bool(reason) or over
        if planned or progress.is_best or stopped:
            weights, moments = trainer.tensors()
            if ranks.is_first:
                trainer.saved = run.save(weights, moments, progress, planned=planned).name
            display.restart()
            pace.lap("checkpoint")
        if reason or over or stopped:
            break
    return progress, int(stopped)


def _try_largest_batch(trainer: Trainer, progress: Progress, display: Display) -> None:
    """Find out early whether memory holds every batch; on a GPU this also compiles the layers."""
    device, began = trainer.ranks.device, time.perf_counter()
    if device.type == "cuda":
        compiles = trainer.step.compiles and "TORCH_COMPILE_DISABLE" not in os.environ
        kept = f"{keep_compiled()}, or TORCHINDUCTOR_CACHE_DIR"
        first = f" (layers are compiled first, which is kept in {kept}; --no-compile omits it)"
        display.say(f"trying the largest batch{first * compiles}")
    if limit := trainer.check_largest_batch(progress.position):
        display.say(
            f"the largest batch does not fit in memory; max_tokens={limit} is used from now on. "
            f"Pass --max-tokens {limit} to avoid the retry."
        )
    each = " in each process" * (trainer.ranks.size > 1)
    display.say(f"memory      {size(peak_memory(device))}{each} with the largest batch, measured")
    if device.type == "cuda":
        display.say(f"tried after {time.perf_counter() - began:.0f} s")


def _noted(results: Sequence[UpdateResult], progress: Progress, display: Display) -> Progress:
    """Count and report the updates that a GPU has finished."""
    for result in results:
        progress = progress.after_result(bad=result.is_bad)
        display.updated(result)
    return progress


def _validated(trainer: Trainer, progress: Progress, display: Display) -> Progress:
    """Validate in rank 0, and note whether it is the best so far."""
    began = time.perf_counter()
    model = trainer.validation_model()
    if not trainer.ranks.is_first:
        return progress.validated(trainer.ranks.broadcast(0.0))
    validation = validate(model, trainer.data, trainer.recipe, dtype=trainer.step.dtype)
    score = validation.score(trainer.recipe.training.validation.best_by)
    progress = progress.validated(trainer.ranks.broadcast(score))
    display.validated(progress, validation, seconds=time.perf_counter() - began)
    display.restart()
    return progress
