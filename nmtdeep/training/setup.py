"""Before the first update: checks, the opening table, and a dry run that does only these."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from nmtdeep import checkpoint, files
from nmtdeep.config.model import SIDES
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences
from nmtdeep.config.warnings import warnings
from nmtdeep.data.corpus import DataDirectory, Longest, ParallelCorpus
from nmtdeep.data.plan import mixture_probabilities
from nmtdeep.devices import device_of, kept_settings, native_bf16
from nmtdeep.errors import UserError
from nmtdeep.model.transformer import Transformer
from nmtdeep.scoring.warnings import subword_mark
from nmtdeep.tables import describe
from nmtdeep.training import stages, starting
from nmtdeep.training.graphs import eager_because
from nmtdeep.training.launch import use_threads
from nmtdeep.training.loggers import chosen
from nmtdeep.training.memory import at_once, check_model_fits
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import check_run
from nmtdeep.training.state import Progress
from nmtdeep.training.step import resolve_precision
from nmtdeep.training.trainer import empty_model, freeze
from nmtdeep.training.validation import comet_of, long_lines
from nmtdeep.units import counted, percent


def check(recipe: Recipe, data: DataDirectory, ranks: Ranks) -> None:
    """Check what is known before the run directory is opened.

    The corpus must be made as the recipe says; only what is drawn at training time may differ: the
    sampling of SentencePiece, and the rate of BPE-dropout, unless it was zero, because the
    vocabulary would then lack pieces. In every stage every sentence must fit
    in a batch, and every rank must have one.

    Raises:
        UserError: if recipe, corpus, device and number of ranks do not go together.
    """
    corpora = {name: data.corpus(name) for name in data.training}
    for name, corpus in corpora.items():
        if not len(corpus):
            what = "no training sentences" + f" in {name}" * (len(corpora) > 1)
            raise UserError(what, where=data.path, hint="preprocess again")
    stored, wanted = data.pipeline.config.model_dump(), recipe.text.model_dump()
    free = ["text.tokenizer.sampling"]
    free += ["text.bpe.dropout:"] if stored["bpe"].get("dropout") else []
    changes = [
        key for key in differences(stored, wanted, "text") if not key.startswith(tuple(free))
    ]
    if changes:
        raise UserError(
            f"was preprocessed with another recipe ({'; '.join(changes)})",
            where=data.path,
            hint="preprocess again with this recipe, or omit these keys: train takes them from "
            "--data, where a new run starts",
        )
    if recipe.training.sharding == "full" and ranks.size == 1:
        raise UserError(
            "full spreads a model over several processes",
            where="training.sharding",
            hint="pass --processes, start with torchrun, or set training.sharding=none",
        )
    longest = {f" of {name}" * (len(corpora) > 1): each.longest() for name, each in corpora.items()}
    for number in range(len(recipe.training.stages) or 1):
        _check_mixture(recipe, number, corpora)
        _check_batches(recipe.at_stage(number), longest, ranks)
    check_model_fits(recipe.model, **data.pipeline.sizes)
    resolve_precision(recipe.training.precision, ranks.device)
    chosen(recipe)
    if ranks.is_first:
        comet_of(recipe, data, "valid", ranks.device)  # rank 0 validates


def _check_batches(recipe: Recipe, longest: Mapping[str, Longest], ranks: Ranks) -> None:
    """Check that a stage has a batch for every sentence, and for every rank.

    Args:
        longest: the longest sentence of each corpus, by the words for the corpus in a message.
    """
    packed, batches = recipe.uses_packing(ranks.device.type), recipe.training.batches
    limit = batches.limit(packed=packed)
    for of, pair in longest.items():
        if pair.tokens > limit:
            raise UserError(
                f"training sentence {pair.sentence}{of} has {pair.tokens} tokens, more than "
                f"max_tokens {limit}",
                hint="raise --max-tokens, or lower text.clean.max_length and preprocess again",
            )
    largest = at_once(recipe, ranks.device.type)
    if not packed and -(-batches.tokens_per_update // largest) < ranks.size:
        raise UserError(
            f"updates of {batches.tokens_per_update} tokens in batches of {largest} leave some "
            f"of {ranks.size} processes idle",
            hint=f"pass --max-tokens {-(-batches.tokens_per_update // ranks.size)} or fewer "
            "--processes",
        )


def _check_mixture(recipe: Recipe, stage: int, corpora: Mapping[str, ParallelCorpus]) -> None:
    """Check that a stage mixes known corpora, and reads the one whose epochs are its length."""
    drawn = mixture_probabilities(recipe.at_stage(stage).training.mixture, corpora)
    if not recipe.training.stages:
        return
    of = recipe.training.stages[stage].epochs_of or next(iter(corpora))
    if recipe.training.stages[stage].epochs and not drawn.get(of):
        raise UserError(
            f"stage {stage + 1} ends after epochs of {of}, which is not in its mixture",
            where="training.stages",
            hint=f"set epochs_of to one of {', '.join(name for name in drawn if drawn[name])}",
        )


def _hardware(ranks: Ranks) -> str:
    processes = [f"{ranks.size} processes"] if ranks.size > 1 else []
    if ranks.device.type == "cuda":
        return ", ".join([torch.cuda.get_device_name(ranks.device), *processes])
    threads = counted(torch.get_num_threads(), "thread")
    return f"cpu, {' of '.join([*processes, threads])}"


def opening(recipe: Recipe, data: DataDirectory, ranks: Ranks, progress: Progress) -> str:
    """Model, data and device as a small table, the first message of a training.

    Args:
        recipe: with all stages.
    """
    stage, device = recipe.at_stage(progress.stage), ranks.device
    corpora = {name: data.corpus(name) for name in data.training}
    batches, drawn = stage.training.batches, mixture_probabilities(stage.training.mixture, corpora)
    dtype = resolve_precision(stage.training.precision, device)
    packed = recipe.uses_packing(device.type)
    eager = eager_because(stage, device) if device.type == "cuda" else ""
    with torch.device("meta"):
        model = empty_model(stage, data)
    freeze(model, stage.training.frozen)
    precision = stage.training.precision
    if precision == "auto":
        precision = "fp32" if dtype == torch.float32 else "bf16"
    parameters = sum(parameter.numel() for parameter in model.parameters())
    numbers, section = range(len(recipe.training.stages)), stage.model
    depths = [recipe.at_stage(number).model.depths for number in numbers]
    same = [f"{len(depths)}, each of {section.depths}"]
    update, mark = progress.update, subword_mark(data.references("valid"))
    start = recipe.training.start_from
    rows = {
        "model": f"{section.depths} layers, width {section.widths}, {parameters:,} parameters",
        "vocabulary": " and ".join(
            f"{count:,} {name} types" for name, count in data.pipeline.types.items()
        ),
        "corpus": (
            f"{data.path}: {sum(map(len, corpora.values())):,} training pairs, "
            f"{len(data.corpus('valid')):,} for validation"
        ),
        "long lines": long_lines(data.corpus("valid"), stage),
        "mixture": ", ".join(
            f"{percent(drawn[name], 0)} {name} ({len(corpus):,} pairs)"
            for name, corpus in corpora.items()
        )
        * (len(corpora) > 1),
        "batches": (
            f"{batches.tokens_per_update:,} padded tokens per update, "
            f"at most {at_once(stage, device.type):,} at once{', packed' * packed}"
        ),
        "device": f"{_hardware(ranks)}, matrix products in {precision}",
        "graphs": eager and f"none, for {eager}",
        "stages": f"{', '.join(depths if len({*depths}) > 1 else same)} layers" * bool(depths),
        "warning": mark and f"scores count pieces of words: valid has subwords ({mark})",
        "frozen": _frozen(stage, model),
        "weights": start and f"from {starting.start_text(start, 16)}",
        "start": f"resumed after update {update}" if update else "new training",
    }
    lines = [(name, value) for name, value in rows.items() if value]
    if dtype == torch.bfloat16 and not native_bf16(device):
        lines.append(("warning", f"{device.type} emulates bf16: --precision auto is faster"))
    problems = [*map(str, warnings(recipe)), *filter(None, [stages.low_peak(recipe, progress)])]
    return describe([*lines, *(("warning", problem) for problem in problems)])


def _frozen(recipe: Recipe, model: Transformer) -> str:
    """What is not trained, and how much is; empty if everything is trained."""
    frozen = recipe.training.frozen
    layers = {side: getattr(frozen, side) for side in SIDES if getattr(frozen, side)}
    parts = [
        side if count == "all" else f"{counted(count, 'bottom layer')} of the {side}"
        for side, count in layers.items()
    ]
    parts += ["embeddings"] * frozen.embeddings
    parameters = list(model.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    share = f"{trained:,} of {sum(map(Tensor.numel, parameters)):,} parameters are trained"
    return f"{', '.join(parts)}; {share}" if parts else ""


@kept_settings()
def dry_run(
    recipe: Recipe,
    *,
    data: Path,
    out: Path | None,
    device: str = "auto",
    threads: int | None = None,
    processes: int = 1,
    overwrite: bool = False,
    verify: bool = True,
) -> list[str]:
    """The messages of `training.loop.train` before its first update, without writing anything.

    The checks are the same, except that the largest batch is not tried.

    Args:
        out: run directory; None: a new one.

    Raises:
        UserError: as `training.loop.train`.
    """
    corpora = DataDirectory.open(data, verify=verify)
    ranks = Ranks(0, processes, device=device_of(device, rank=0, processes=processes))
    check(recipe, corpora, ranks)
    text, anew = corpora.pipeline, overwrite or out is None
    run = check_run(out or Path(), recipe, text, overwrite=anew, corpus=corpora.digest)
    progress = Progress()
    if not (overwrite or out is None) and (newest := run.newest()):
        progress = Progress.of(newest)
        files.verify(newest, hint=checkpoint.HINT)
    if stages.stop_reason(recipe, progress):
        return [stages.nothing_to_do(recipe, progress)]
    use_threads(threads or torch.get_num_threads(), processes)
    changes = (f"changed: {change}" for change in run.changes)
    return [opening(run.recipe, corpora, ranks, progress), *changes]
