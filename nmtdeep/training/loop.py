"""The training loop, which every rank runs; rank 0 writes and prints."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from nmtdeep.data.corpus import DataDirectory, opened
from nmtdeep.devices import keep_compiled, kept_settings
from nmtdeep.errors import UserError
from nmtdeep.files import SUMS
from nmtdeep.training import stage_control
from nmtdeep.training.budget import Pace, continued, epoch_tokens
from nmtdeep.training.divergence import ADVICE
from nmtdeep.training.energy import Meter
from nmtdeep.training.feed import upcoming
from nmtdeep.training.launch import is_launched, join_ranks, launch, noted_signals, use_threads
from nmtdeep.training.memory import is_out_of_memory, peak_memory, release
from nmtdeep.training.opening import check, opening
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.recorder import Recorder
from nmtdeep.training.run_directory import RunDirectory, begun_by_this_launch, open_run
from nmtdeep.training.setup import Setup, TrainingJob
from nmtdeep.training.state import FittedUpdates, Progress
from nmtdeep.training.step import UpdateResult
from nmtdeep.training.trainer import Trainer
from nmtdeep.training.validation import Validation, validate
from nmtdeep.units import counted, size


@kept_settings()
def train(
    job: TrainingJob, *, quiet: bool = False, clock: Callable[[], float] = time.perf_counter
) -> int | None:
    """Train the model of a recipe on a preprocessed corpus, or resume its training exactly.

    In a process that torchrun started, this is one of its ranks.

    Args:
        job: what to train, and where; `out` is given.
        quiet: print no progress, tables or summary.
        clock: seconds since some moment; processes that are started here have the usual one.

    Returns:
        Number of the signal that stopped the training, or 0; None in a rank other than 0.

    Raises:
        UserError: for anything that the user can fix; checkpoints on disk stay intact.
        SystemExit: in a rank of a launcher, if a signal was received.
    """
    recipe, out = job.recipe, job.out
    assert out is not None
    if not is_launched() and job.processes > 1:
        use_threads(job.threads, 1)
        data = job.data if isinstance(job.data, Path) else job.data.path
        a_rank = replace(job, data=data, threads=torch.get_num_threads())
        return launch(job.processes, partial(train, a_rank, quiet=quiet))
    with noted_signals() as signals, join_ranks(job.device, job.threads, signals) as ranks:
        if job.processes not in (1, ranks.size):
            raise UserError(
                f"{job.processes}, but torchrun has started {ranks.size}",
                where="--processes",
                hint="omit --processes or torchrun",
            )
        corpora = _same_corpora(job.data, ranks, job.verify)
        setup = check(recipe, corpora, ranks)
        with ExitStack() as opened_files:
            run = RunDirectory(out, recipe, corpora.pipeline)
            progress, newest = Progress(), ""
            if ranks.is_first:
                text, digest = corpora.pipeline, corpora.digest
                overwrite = job.overwrite and not begun_by_this_launch(out)
                directory = open_run(out, recipe, text, overwrite=overwrite, corpus=digest)
                run = opened_files.enter_context(directory)
                if path := run.newest():
                    progress, newest = Progress.of(path), path.name
                run.repair(progress)
            progress, newest = ranks.broadcast((progress, newest))
            recorder = Recorder(out, recipe, quiet=quiet, writes=ranks.is_first, clock=clock)
            opened_files.enter_context(recorder)
            setup = replace(setup, recipe=run.recipe)
            loop = _Loop(setup, run, recorder, Meter(ranks), signals)
            stopped = loop.train(progress, out / newest if newest else None)
    if is_launched() and (stopped or signals):
        # A launcher that has passed on a signal waits until its ranks have exited.
        raise SystemExit(128 + (stopped or signals[0]))
    return stopped if ranks.is_first else None


def _same_corpora(data: Path | DataDirectory, ranks: Ranks, verify: bool) -> DataDirectory:
    """The data directory of this machine, if all ranks have the same corpora."""
    corpora = opened(data)
    if verify and ranks.rank % ranks.local_size == 0:
        corpora.verify()
    sums = (corpora.path / SUMS).read_text(encoding="utf-8")
    if ranks.broadcast(sums) != sums:
        what, hint = "differs from the corpus of rank 0", "copy the data directory again"
        raise UserError(what, where=corpora.path, hint=hint)
    return corpora


@dataclass(frozen=True)
class _Loop:
    """The loop of a rank: `setup` has all stages, `signals` the numbers of those received."""

    setup: Setup
    run: RunDirectory
    recorder: Recorder
    meter: Meter
    signals: Sequence[int]

    def train(self, progress: Progress, newest: Path | None) -> int:
        """Train until the end, growing between stages; the signal that stopped it, or 0."""
        recipe, say = self.setup.recipe, self.recorder.say
        progress = continued(recipe.training, progress)
        if stage_control.stop_reason(recipe, progress):
            say(stage_control.nothing_to_do(recipe, progress))
            return 0
        said = partial(say, opening(self.setup, progress))
        trainer = Trainer(self.setup.at_stage(progress.stage), newest, ready=said)
        for change in self.run.changes:
            say(f"changed: {change}")
        if self.setup.ranks.is_first:
            self.run.accept()
            self.run.drop_results()
        started, stopped = self.recorder.clock() - progress.seconds, 0
        while not (stopped or stage_control.stop_reason(recipe, progress)):
            if stage_control.stage_ended(recipe, progress):
                progress = stage_control.next_stage(recipe, progress)
                stage = self.setup.at_stage(progress.stage)
                if stage_control.keeps_model(recipe, progress.stage):
                    trainer.setup = stage
                else:
                    trainer = trainer.grown(stage)
                say(stage_control.announcement(recipe, progress))
            progress, stopped = self._train_stage(trainer, progress, started)
        if graphs := trainer.graphs():
            say(graphs)
        self.recorder.log(self.meter.summary(progress))
        update, reason = progress.update, stage_control.stop_reason(recipe, progress)
        if stopped and not reason:
            name = signal.Signals(stopped).name
            say(f"stopped by {name}, saved at update {update}; run the same command to resume")
            return stopped
        if self.setup.ranks.is_first:
            self.run.drop_results()  # an average of before the end
        say(f"done after {counted(update, 'update')}: {reason}")
        if warning := stage_control.linear_not_finished(recipe, progress):
            say(warning)
        if number := stopped or (self.signals[0] if self.signals else 0):
            name = signal.Signals(number).name
            say(f"stopped by {name} after the last update; run the same command for the scores")
        return number

    def _train_stage(
        self, trainer: Trainer, progress: Progress, started: float
    ) -> tuple[Progress, int]:
        """One stage: the progress at its end, and the number of the signal that stopped it, or 0.

        All decisions are functions of `progress`, the same in every rank.
        """
        recipe, ranks, recorder = self.setup.recipe, self.setup.ranks, self.recorder
        settings, valid = recipe.training, self.setup.data.corpus("valid")
        self._try_largest_batch(trainer, progress)
        recorder.restart()
        pace = Pace(len(valid.target.tokens), epoch_tokens(trainer.setup), recorder.clock)
        for coming in upcoming(trainer.setup, progress):
            before, batches = progress, coming.batches
            results = trainer.train(batches, progress)
            # Any rank may have received a signal; the time is that of rank 0's clock.
            seconds = (recorder.clock() - started) * ranks.is_first
            received = self.signals[0] if self.signals else 0
            stopped, seconds = ranks.all_reduce_max(received, seconds)
            progress = replace(
                progress.after_update(coming.position),
                seconds=seconds,
                target_tokens=progress.target_tokens + batches.target_tokens,
            )
            progress = self._noted(results, progress)
            recorder.waited(coming.waited)
            pace.lap("update", batches.target_tokens)
            if plan := pace.plan(settings, progress):
                progress = self._planned(plan, progress)
            reason = stage_control.stop_reason(recipe, progress)
            over = stage_control.stage_ended(recipe, progress)
            intervals = settings.log_every, settings.validation.every, settings.checkpoints.every
            logs, validates, planned = (progress.completes(each, before) for each in intervals)
            validates = validates or bool(reason) or over
            if logs or validates or planned or stopped:
                progress = self._noted(trainer.finish(progress), progress)
                progress = self.meter.counted(progress)
                recorder.recorded(progress, device=ranks.device)
            if validates:
                progress = self._validated(trainer, progress)
                pace.lap("validation")
                reason = reason or stage_control.stop_reason(recipe, progress)
            # Never replace a good checkpoint.
            planned = (planned and not progress.bad_updates) or bool(reason) or over
            if planned or progress.is_best or stopped:
                progress = replace(progress, scaler=trainer.step.passes.scaler.state_dict())
                if ranks.is_first:
                    path = self.run.save(*trainer.tensors(), progress, planned=planned)
                    trainer.saved = path.name
                recorder.restart()
                pace.lap("checkpoint")
            if reason or over or stopped:
                break
        return progress, int(stopped)

    def _planned(self, plan: FittedUpdates, progress: Progress) -> Progress:
        """Fix the number of updates, by rank 0's clock."""
        plan = self.setup.ranks.broadcast(plan)
        progress = replace(progress, plan=plan)
        fits = f"{plan.updates:,} updates fit into {plan.minutes:g} minutes"
        self.recorder.say(f"{fits}, and the training ends there")
        if warning := stage_control.low_peak(self.setup.recipe, progress):
            self.recorder.say(f"warning: {warning}")
        return progress

    def _try_largest_batch(self, trainer: Trainer, progress: Progress) -> None:
        """Find out early whether memory holds every batch; on a GPU this also compiles layers."""
        device, began, say = self.setup.device, time.perf_counter(), self.recorder.say
        if device.type == "cuda":
            first = "trying the largest batch"
            if trainer.step.passes.compiles and "TORCH_COMPILE_DISABLE" not in os.environ:
                kept = f"{keep_compiled()}, or TORCHINDUCTOR_CACHE_DIR"
                first += f" (layers are compiled first, which is kept in {kept}; --no-compile "
                first += "omits it)"
            say(first)
        if limit := trainer.check_largest_batch(progress.position):
            say(
                f"the largest batch does not fit in memory; max_tokens={limit} is used from now "
                f"on. Pass --max-tokens {limit} to avoid the retry."
            )
        memory = f"memory      {size(peak_memory(device))}"
        if self.setup.ranks.size > 1:
            memory += " in each process"
        say(f"{memory} with the largest batch, measured")
        if device.type == "cuda":
            say(f"tried after {time.perf_counter() - began:.0f} s")

    def _noted(self, results: Sequence[UpdateResult], progress: Progress) -> Progress:
        """Count and report the updates that a GPU has finished."""
        for result in results:
            progress = progress.after_result(bad=result.is_bad)
            self.recorder.updated(result)
        return progress

    def _validated(self, trainer: Trainer, progress: Progress) -> Progress:
        """Validate in rank 0, and note whether it is the best so far."""
        began, setup, ranks = time.perf_counter(), trainer.setup, self.setup.ranks
        if not ranks.is_first:
            return progress.validated(ranks.broadcast(0.0))
        validation = measured(trainer)
        score = validation.score(setup.recipe.training.validation.best_by)
        progress = progress.validated(ranks.broadcast(score))
        self.recorder.validated(progress, validation, seconds=time.perf_counter() - began)
        chance = math.log(len(setup.data.pipeline.target.vocabulary))
        if validation.nll > chance + 1:
            worse = f"nll {validation.nll:.1f} is worse than guessing ({chance:.1f})"
            self.recorder.say(f"warning: {worse}: try {ADVICE}")
        self.recorder.restart()
        return progress


def measured(trainer: Trainer) -> Validation:
    """The validation of a model; the graphs that replay updates make room for it if they must."""
    try:
        return validate(trainer.validation_model(), trainer.setup)
    except Exception as error:
        if not (len(trainer.step.passes.graphs) and is_out_of_memory(error)):
            raise
    trainer.step.forget()
    release()
    return validate(trainer.validation_model(), trainer.setup)
