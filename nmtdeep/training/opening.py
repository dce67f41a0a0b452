"""Before the first update: checks, the opening table, and a dry run that does only these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from nmtdeep import checkpoint, files
from nmtdeep.config.model import SIDES
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences
from nmtdeep.config.warnings import warnings
from nmtdeep.data.corpus import DataDirectory, Longest, opened
from nmtdeep.data.plan import mixture_probabilities
from nmtdeep.devices import kept_settings, native_bf16, resolve_device
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.scoring.warnings import subword_mark
from nmtdeep.tables import describe
from nmtdeep.training import stage_control, starting
from nmtdeep.training.graphs import eager_because
from nmtdeep.training.launch import use_threads
from nmtdeep.training.loggers import chosen
from nmtdeep.training.memory import check_model_fits
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import check_run
from nmtdeep.training.setup import Setup, TrainingJob, resolve_precision
from nmtdeep.training.state import Progress
from nmtdeep.training.trainer import empty_model, freeze
from nmtdeep.training.validation import comet_of, long_lines
from nmtdeep.units import counted, percent


def check(recipe: Recipe, data: DataDirectory, ranks: Ranks) -> Setup:
    """The setup of a training, checked as far as it can be before the run directory is opened.

    Raises:
        UserError: if recipe, corpus, device and number of ranks do not go together.
    """
    setup = Setup(recipe, data, ranks)
    for name, corpus in setup.training_corpora.items():
        if not len(corpus):
            what = f"no training sentences in {name}"
            raise UserError(what, where=data.path, hint="preprocess again")
    _check_text(setup)
    longest = {name: corpus.longest() for name, corpus in setup.training_corpora.items()}
    for number in range(len(recipe.training.stages) or 1):
        _check_mixture(setup, number)
        _check_batches(setup.at_stage(number), longest)
        _check_frozen(setup.at_stage(number))
    check_model_fits(recipe.model, **data.pipeline.sizes)
    resolve_precision(recipe.training.precision, ranks.device)
    chosen(recipe)
    if ranks.is_first:
        comet_of(setup, "valid")  # rank 0 validates
    return setup


def _check_text(setup: Setup) -> None:
    """Check that the corpus was preprocessed by the recipe's section `text`.

    Only what is drawn at training time may differ: the sampling of SentencePiece, and the rate of
    BPE-dropout, unless it was zero, because the vocabulary would then lack pieces.
    """
    stored = setup.data.pipeline.config.model_dump()
    free = ["text.tokenizer.sampling"]
    if stored["bpe"].get("dropout"):
        free.append("text.bpe.dropout:")
    changes = differences(stored, setup.recipe.text.model_dump(), "text")
    if changes := [key for key in changes if not key.startswith(tuple(free))]:
        raise UserError(
            f"was preprocessed with another recipe ({'; '.join(changes)})",
            where=setup.data.path,
            hint="preprocess again with this recipe, or omit these keys: train takes them from "
            "--data, where a new run starts",
        )


def _check_batches(setup: Setup, longest: Mapping[str, Longest]) -> None:
    """Check that a stage has a batch for every sentence, and for every rank."""
    batches, ranks = setup.recipe.training.batches, setup.ranks
    for name, pair in longest.items():
        if pair.tokens > setup.max_tokens:
            raise UserError(
                f"training sentence {pair.sentence} of {name} has {pair.tokens} tokens, more than "
                f"max_tokens {setup.max_tokens}",
                hint="raise --max-tokens, or lower text.clean.max_length and preprocess again",
            )
    if not setup.packed and -(-batches.tokens_per_update // setup.at_once) < ranks.size:
        raise UserError(
            f"updates of {batches.tokens_per_update} tokens in batches of {setup.at_once} leave "
            f"some of {ranks.size} processes idle",
            hint=f"pass --max-tokens {-(-batches.tokens_per_update // ranks.size)} or fewer "
            "--processes",
        )


def _check_frozen(setup: Setup) -> None:
    """Check that a stage trains something."""
    with torch.device("meta"):
        model = empty_model(setup)
    freeze(model, setup.recipe.training.frozen)
    if not any(each.requires_grad for each in model.parameters()):
        what, hint = "leaves nothing to train", "freeze less"
        raise UserError(what, where="training.frozen", hint=hint)


def _check_mixture(setup: Setup, stage: int) -> None:
    """Check that a stage mixes known corpora, and reads the one whose epochs are its length."""
    recipe, corpora = setup.recipe, setup.training_corpora
    drawn = mixture_probabilities(recipe.at_stage(stage).training.mixture, corpora)
    training, first = recipe.training, next(iter(corpora))
    chosen = training.stages[stage] if training.stages else None
    every = training.validation.every, training.checkpoints.every
    ends = training.max_epochs and not (chosen and (chosen.updates or chosen.epochs))
    if not drawn[first] and (ends or any(isinstance(interval, str) for interval in every)):
        raise UserError(
            f"epochs are those of {first}, which is not in the mixture",
            where="training.mixture",
            hint="set max_epochs and intervals in updates, or give it a weight",
        )
    if chosen is None:
        return
    of = chosen.epochs_of or first
    if chosen.epochs and not drawn.get(of):
        raise UserError(
            f"stage {stage + 1} ends after epochs of {of}, which is not in its mixture",
            where="training.stages",
            hint=f"set epochs_of to one of {', '.join(name for name in drawn if drawn[name])}",
        )


def opening(setup: Setup, progress: Progress) -> str:
    """Model, data and device as a small table, the first message of a training."""
    recipe, stage = setup.recipe, setup.at_stage(progress.stage)
    with torch.device("meta"):
        model = empty_model(stage)
    freeze(model, stage.recipe.training.frozen)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    section, update = stage.recipe.model, progress.update
    lines = [
        ("model", f"{section.depths} layers, width {section.widths}, {parameters:,} parameters"),
        *_data_lines(stage),
        ("device", _hardware(stage)),
    ]
    eager = eager_because(stage)
    if eager and setup.device.type == "cuda":
        lines.append(("graphs", f"none, for {eager}"))
    depths = [recipe.at_stage(number).model.depths for number in range(len(recipe.training.stages))]
    if len({*depths}) > 1:
        lines.append(("stages", f"{', '.join(depths)} layers"))
    elif depths:
        lines.append(("stages", f"{len(depths)}, each of {section.depths} layers"))
    if mark := subword_mark(setup.data.references("valid")):
        lines.append(("warning", f"scores count pieces of words: valid has subwords ({mark})"))
    if frozen := _frozen(stage.recipe, model):
        lines.append(("frozen", frozen))
    if start := recipe.training.start_from:
        lines.append(("weights", f"from {starting.start_text(start, 16)}"))
    lines.append(("start", f"resumed after update {update}" if update else "new training"))
    if stage.dtype == torch.bfloat16 and not native_bf16(setup.device):
        lines.append(("warning", f"{setup.device.type} emulates bf16: --precision auto is faster"))
    lines += [("warning", str(problem)) for problem in warnings(recipe)]
    if problem := stage_control.low_peak(recipe, progress):
        lines.append(("warning", problem))
    return describe(lines)


def _data_lines(setup: Setup) -> Iterator[tuple[str, str]]:
    """Names and values of the opening table about a stage's corpora and batches."""
    data, corpora, valid = setup.data, setup.training_corpora, setup.data.corpus("valid")
    types = (f"{count:,} {name} types" for name, count in data.pipeline.types.items())
    yield "vocabulary", " and ".join(types)
    pairs = sum(map(len, corpora.values()))
    yield "corpus", f"{data.path}: {pairs:,} training pairs, {len(valid):,} for validation"
    if long := long_lines(valid, setup.recipe):
        yield "long lines", long
    if len(corpora) > 1:
        drawn = mixture_probabilities(setup.recipe.training.mixture, corpora)
        shares = (
            f"{percent(drawn[name], 0)} {name} ({len(corpus):,} pairs)"
            for name, corpus in corpora.items()
        )
        yield "mixture", ", ".join(shares)
    tokens = setup.recipe.training.batches.tokens_per_update
    batches = f"{tokens:,} padded tokens per update, at most {setup.at_once:,} at once"
    yield "batches", f"{batches}, packed" if setup.packed else batches


def _hardware(setup: Setup) -> str:
    """The device, its processes or threads, and the precision."""
    precision, ranks = setup.recipe.training.precision, setup.ranks
    if precision == "auto":
        precision = "fp32" if setup.dtype == torch.float32 else "bf16"
    processes = [f"{ranks.size} processes"] if ranks.size > 1 else []
    if setup.device.type == "cuda":
        device = ", ".join([torch.cuda.get_device_name(setup.device), *processes])
    else:
        threads = counted(torch.get_num_threads(), "thread")
        device = f"cpu, {' of '.join([*processes, threads])}"
    return f"{device}, matrix products in {precision}"


def _frozen(recipe: Recipe, model: Transformer) -> str:
    """What is not trained, and how much is; empty if everything is trained."""
    frozen = recipe.training.frozen
    layers = {side: getattr(frozen, side) for side in SIDES if getattr(frozen, side)}
    parts = [
        side if count == "all" else f"{counted(count, 'bottom layer')} of the {side}"
        for side, count in layers.items()
    ]
    if frozen.embeddings:
        parts.append("embeddings")
    if not parts:
        return ""
    total = sum(each.numel() for each in model.parameters())
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    return f"{', '.join(parts)}; {trained:,} of {total:,} parameters are trained"


@kept_settings()
def dry_run(job: TrainingJob) -> list[str]:
    """The messages of `training.loop.train` before its first update, without writing anything.

    The checks are the same, except that the largest batch is not tried.

    Raises:
        UserError: as `training.loop.train`.
    """
    ranks = Ranks(0, job.processes, device=resolve_device(job.device, processes=job.processes))
    corpora = opened(job.data)
    if job.verify:
        corpora.verify()
    setup = check(job.recipe, corpora, ranks)
    starts = job.overwrite or job.out is None
    text, digest = corpora.pipeline, corpora.digest
    run = check_run(job.out or Path(), job.recipe, text, overwrite=starts, corpus=digest)
    progress = Progress()
    if not starts and (newest := run.newest()):
        progress = Progress.of(newest)
        files.verify(newest, hint=checkpoint.HINT)
    if stage_control.stop_reason(job.recipe, progress):
        return [stage_control.nothing_to_do(job.recipe, progress)]
    use_threads(job.threads or torch.get_num_threads(), job.processes)
    changes = (f"changed: {change}" for change in run.changes)
    return [opening(replace(setup, recipe=run.recipe), progress), *changes]
