"""Training: set the learning rate, train one update, log, validate, save; nothing else."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

import numpy as np
import torch

from nmtdeep import checkpoint
from nmtdeep.config import Recipe
from nmtdeep.data import batching, bpe_dropout
from nmtdeep.data.batching import Batch
from nmtdeep.data.corpus import DataDirectory, ParallelCorpus
from nmtdeep.decoding.translator import resolve_device
from nmtdeep.errors import UserError
from nmtdeep.model.build import build, initialise
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.display import Display
from nmtdeep.training.run_directory import RunDirectory, open_run
from nmtdeep.training.schedule import learning_rate
from nmtdeep.training.state import Progress, optimiser_tensors, restore_optimiser
from nmtdeep.training.summary import opening
from nmtdeep.training.update import make_optimiser, resolve_precision, train_update
from nmtdeep.training.validation import Validator


@dataclass(frozen=True)
class Outcome:
    """How a training ended.

    Attributes:
        reason: in words, for people.
        signal: number of the signal that asked it to leave, or 0.
    """

    progress: Progress
    reason: str
    signal: int = 0


@dataclass(frozen=True)
class Upcoming:
    """The batches of the next update and the position after it."""

    batches: list[Batch]
    epoch: int
    next_in_epoch: int
    waited: float


class Trainee:
    """The model in training, its optimiser and loss scaler."""

    def __init__(self, recipe: Recipe, data: DataDirectory, device: torch.device) -> None:
        pipeline = data.pipeline
        self.model: Transformer = build(
            recipe.model,
            source_types=len(pipeline.source.vocabulary),
            target_types=len(pipeline.target.vocabulary),
        )
        initialise(self.model, recipe.model, seed=recipe.training.seed)
        self.model.to(device)
        self.dtype = resolve_precision(recipe.training.precision, device)
        self.optimiser = make_optimiser(self.model, recipe.training.optimiser)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.dtype == torch.float16)

    def restore(self, path: Path) -> Progress:
        """Take weights, moments and position from a checkpoint."""
        progress = Progress.from_json(checkpoint.read_state(path))
        model_file, moments = path / checkpoint.MODEL, path / checkpoint.OPTIMISER
        checkpoint.fill(self.model, checkpoint.read_tensors(model_file), model_file)
        restore_optimiser(self.model, self.optimiser, checkpoint.read_tensors(moments))
        if self.scaler.is_enabled():
            state = self.scaler.state_dict()  # type: ignore[no-untyped-call]
            self.scaler.load_state_dict(state | {"scale": progress.loss_scale})
        return progress


def train(
    recipe: Recipe,
    *,
    data: Path,
    out: Path,
    device: str = "auto",
    threads: int | None = None,
    quiet: bool = False,
) -> Outcome:
    """Train, or go on training, the model of `recipe` on a preprocessed corpus.

    Args:
        recipe: the experiment; reopening a run needs the same model, text and batches.
        data: directory that `preprocess` wrote.
        out: run directory; an interrupted training there is continued exactly.
        device: auto, cpu, cuda or cuda:N.
        threads: CPU threads; None keeps torch's choice.
        quiet: no progress on the screen.

    Raises:
        UserError: for anything that the user can mend; checkpoints on disk stay whole.
    """
    if threads:
        torch.set_num_threads(threads)
    place = resolve_device(device)
    corpora = DataDirectory.open(data)
    _check_text(recipe, corpora)
    with open_run(out, recipe, corpora.pipeline) as run:
        trainee = Trainee(recipe, corpora, place)
        newest = run.newest()
        progress = trainee.restore(newest) if newest else Progress()
        run.forget_after(progress.update)
        total = recipe.training.max_updates
        with Display(out, total=total, quiet=quiet) as display, _signals() as asked:
            reason = _finished(recipe, progress)
            if reason:
                display.say(f"already at update {progress.update} of {total}: nothing to do")
                return Outcome(progress, reason)
            display.say(opening(recipe, corpora, trainee.model, place, trainee.dtype, progress))
            return _train(recipe, corpora, run, trainee, progress, display, asked)


def _train(
    recipe: Recipe,
    data: DataDirectory,
    run: RunDirectory,
    trainee: Trainee,
    progress: Progress,
    display: Display,
    asked: list[int],
) -> Outcome:
    """The loop."""
    settings = recipe.training
    validate = Validator(data, recipe, dtype=trainee.dtype)
    device = trainee.model.output.weight.device
    started = time.perf_counter() - progress.seconds
    display.restart()
    for upcoming in _upcoming(recipe, data, run.path, progress, device):
        update = progress.update + 1
        lr = learning_rate(settings.schedule, update, width=recipe.model.width)
        result = train_update(
            trainee.model,
            trainee.optimiser,
            trainee.scaler,
            upcoming.batches,
            update=update,
            lr=lr,
            settings=settings,
            dtype=trainee.dtype,
        )
        progress = replace(
            progress,
            update=update,
            epoch=upcoming.epoch,
            next_in_epoch=upcoming.next_in_epoch,
            seconds=time.perf_counter() - started,
            target_tokens=progress.target_tokens + result.target_tokens,
            score=None,
            loss_scale=trainee.scaler.get_scale(),
        )
        display.updated(update, result, waited=upcoming.waited)
        if update % settings.log_every == 0:
            display.logged(progress, settings, lr=lr, device=device)
        reason = _finished(recipe, progress)
        if update % settings.validation.every == 0 or (reason and not asked):
            progress = _validated(validate, trainee.model, recipe, progress, display)
            reason = reason or _finished(recipe, progress)
        is_best = progress.score is not None and progress.best_update == update
        if update % settings.checkpoints.every == 0 or is_best or reason or asked:
            moments = optimiser_tensors(trainee.model, trainee.optimiser)
            run.save(checkpoint.weights(trainee.model), moments, progress, is_best=is_best)
            display.restart()
        if asked:
            reason = f"asked to leave by {signal.Signals(asked[0]).name}"
            display.say(f"{reason}: saved at update {update}; the same command goes on from there")
            return Outcome(progress, reason, asked[0])
        if reason:
            display.say(f"done after {update} updates: {reason}")
            return Outcome(progress, reason)
    raise AssertionError("epochs never end")


def _validated(
    validate: Validator, model: Transformer, recipe: Recipe, progress: Progress, display: Display
) -> Progress:
    """Measure, and note whether it is the best so far."""
    began = time.perf_counter()
    found = validate(model)
    by_bleu = recipe.training.validation.best_by == "bleu" and found.bleu is not None
    score = found.bleu if by_bleu and found.bleu is not None else -found.loss
    progress = progress.validated(score)
    display.validated(
        progress.update,
        progress.epoch,
        found,
        is_best=progress.best_update == progress.update,
        seconds=time.perf_counter() - began,
    )
    return progress


def _finished(recipe: Recipe, progress: Progress) -> str:
    """Why the training is over, or nothing."""
    settings = recipe.training
    patience = settings.validation.patience
    if progress.update >= settings.max_updates:
        return f"max_updates {settings.max_updates} reached"
    if settings.max_epochs is not None and progress.epoch >= settings.max_epochs:
        return f"max_epochs {settings.max_epochs} reached"
    if settings.max_minutes is not None and progress.seconds >= settings.max_minutes * 60:
        return f"max_minutes {settings.max_minutes:g} reached"
    if patience and progress.stale >= patience:
        return f"no better validation in {patience}, best at update {progress.best_update}"
    return ""


def _upcoming(
    recipe: Recipe, data: DataDirectory, run: Path, progress: Progress, device: torch.device
) -> Iterator[Upcoming]:
    """Updates from `progress` on, epoch after epoch."""
    settings = recipe.training
    epoch, first = progress.epoch, progress.next_in_epoch
    while True:
        corpus = _epoch_corpus(recipe, data, run, epoch)
        lengths = np.stack((corpus.source.lengths, corpus.target.lengths))
        batching.check_budget(lengths, max_tokens=settings.batches.max_tokens)
        plan = batching.updates(
            lengths,
            group_tokens=settings.batches.group_tokens,
            tokens_per_update=settings.batches.tokens_per_update,
            seed=settings.seed,
            epoch=epoch,
        )
        for number in range(first, len(plan)):
            began = time.perf_counter()
            batches = [
                batching.collate(corpus, indices).to(device)
                for indices in batching.split(lengths, plan[number], settings.batches.max_tokens)
            ]
            last = number + 1 == len(plan)
            yield Upcoming(
                batches,
                epoch + 1 if last else epoch,
                0 if last else number + 1,
                time.perf_counter() - began,
            )
        epoch, first = epoch + 1, 0


def _epoch_corpus(recipe: Recipe, data: DataDirectory, run: Path, epoch: int) -> ParallelCorpus:
    """The training corpus; under BPE-dropout another segmentation each epoch."""
    corpus = data.corpus("train")
    if not getattr(recipe.text.bpe, "dropout", 0.0):
        return corpus
    return bpe_dropout.resample(
        corpus,
        data.pipeline,
        seed=recipe.training.seed,
        epoch=epoch,
        directory=run / "bpe_dropout",
    )


def _check_text(recipe: Recipe, data: DataDirectory) -> None:
    """The corpus must have been made as the recipe says, BPE-dropout aside."""
    stored = data.pipeline.config
    if not len(data.corpus("train")):
        raise UserError(f"{data.path} has no training sentences: preprocess again")
    for name in ("source", "target", "input", "normalise", "lowercase"):
        if getattr(stored, name) != getattr(recipe.text, name):
            raise UserError(
                f"{data.path} was preprocessed with text.{name}: {getattr(stored, name)}, the recipe "
                f"says {getattr(recipe.text, name)}: preprocess again with this recipe, or give "
                f"text.{name}={getattr(stored, name)}"
            )
    if stored.vocabulary.sharing != recipe.text.vocabulary.sharing:
        raise UserError(
            f"{data.path} has {stored.vocabulary.sharing} vocabularies, the recipe wants "
            f"{recipe.text.vocabulary.sharing} ones: preprocess again with this recipe"
        )


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying; a second one ends at once."""
    asked: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
