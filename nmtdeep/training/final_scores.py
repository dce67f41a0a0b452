"""After the last update: choose the weights that the run translates with, and score them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nmtdeep import averaging, checkpoint, tables
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory, opened
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import kept_settings, resolve_device
from nmtdeep.errors import printable
from nmtdeep.scoring import Score, score_texts, scorers
from nmtdeep.scoring.metrics import best_figure, usual_metrics, validation_metrics
from nmtdeep.scoring.report import score_table
from nmtdeep.scoring.stored import store, stored_scores
from nmtdeep.scoring.warnings import without_ter
from nmtdeep.training import starting
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.run_directory import CANDIDATE, LOG, locked
from nmtdeep.training.setup import Setup
from nmtdeep.training.validation import comet_of, translated, validate
from nmtdeep.units import counted

# A model with less BLEU and chrF has learned too little: its translations end only at the length
# limit.
LEAST = (1.0, 20.0)
FIRST_LINES = 50
Say = Callable[[str], None]


@kept_settings()
def finish(
    recipe: Recipe,
    *,
    data: Path | DataDirectory,
    run: Path,
    device: str = "auto",
    final_scores: bool | None = None,
) -> None:
    """Choose between the mean of the last checkpoints and the best one, and score the choice.

    An average that exists is kept: a user made it, or an earlier call chose it. Messages go to
    stdout and to `train.log`.

    Args:
        final_scores: translate and score every held-out set into `scores.json`. None: only if the
            first lines of the validation set show that the model has learned something.
    """
    corpora = opened(data)  # the training has verified it
    held_out = corpora.held_out
    stored = stored_scores(run, checkpoint.locate(run))
    recipe = starting.tokenized(recipe, read_config(run / checkpoint.CONFIG))
    setup = Setup(recipe, corpora, Ranks(device=resolve_device(device)))
    with locked(run), (run / LOG).open("a", encoding="utf-8") as log:

        def say(text: str) -> None:
            tables.say(printable(text), sys.stdout)
            log.write(f"{printable(text)}\n")

        if not stored or (final_scores and not set(held_out) <= set(stored.scores)):
            if not (run / checkpoint.AVERAGE).exists():
                _choose(setup, run, say)
            if final_scores is False:
                return
            translator = Translator.load([run], DecodingOptions(device=device))
            if not final_scores and _has_learned_nothing(translator, setup):
                say(
                    "the model has learned too little to be scored; add --final-scores to score it "
                    "anyway"
                )
                return
            scores = {split: score_split(translator, setup, split, say) for split in held_out}
            stored = store(scores, run, beam=translator.options.beam)
        mean = _mean(checkpoint.locate(run))
        say(f"scores of {stored.title}" + (f", {mean}" if mean else ""))
        for line in score_table(stored.scores):
            say(line)


def _choose(setup: Setup, run: Path, say: Say) -> None:
    """Make the recipe's average, and keep it unless `checkpoint_best` is better by `best_by`."""
    states = {path: checkpoint.read_state(path) for path in checkpoint.saved(run).values()}
    planned = [path for path, state in states.items() if checkpoint.is_planned(state)]
    # Checkpoints of earlier stages have fewer layers.
    stage: Any = list(states.values())[-1].get("stage")
    saved = [path for path in planned if states[path].get("stage") == stage]
    count = min(setup.recipe.training.checkpoints.average_last, len(saved))
    if count < 2:  # the mean of one is that one
        say(f"using {checkpoint.locate(run).name}")
        return
    candidate = averaging.average(saved[-count:], run / CANDIDATE)
    model = checkpoint.load_model(candidate).model.to(setup.device)
    settings, text = setup.recipe.training.validation, setup.recipe.text
    best = checkpoint.follow(run / checkpoint.BEST)
    score = validate(model, setup.at_stage(stage)).score(settings.best_by)
    mean = _mean(candidate)
    with_mean = f"using {checkpoint.AVERAGE}, {mean}"
    if not (best / checkpoint.STATE).is_file():
        candidate.rename(run / checkpoint.AVERAGE)
        say(with_mean)
        return
    best_score = checkpoint.read_state(best)["score"]
    of_best, of_mean = (best_figure(settings, text, value) for value in (best_score, score))
    if score >= best_score:
        candidate.rename(run / checkpoint.AVERAGE)
        say(f"{with_mean}: {of_mean} on valid; {checkpoint.BEST} has {of_best}")
    else:
        checkpoint.discard(candidate)
        say(
            f"using {checkpoint.BEST} ({best.resolve().name}): {of_best} on valid; "
            f"{mean} was worse, {of_mean}, and deleted"
        )


def _mean(path: Path) -> str:
    """The inputs of an averaged checkpoint, in words; empty for other checkpoints."""
    inputs = checkpoint.read_state(path).get("inputs", [])
    names = ", ".join(source["checkpoint"] for source in inputs)
    return f"the mean of {names}" if names else ""


def _has_learned_nothing(translator: Translator, setup: Setup) -> bool:
    """Whether all scores of the first lines of the validation set are below `LEAST`."""
    recipe, data = setup.recipe, setup.data
    translations = translated(translator, data, "valid", first=FIRST_LINES)
    metrics = validation_metrics(recipe.training.validation, recipe.text)
    scores = score_texts(translations, [data.references("valid")[:FIRST_LINES]], metrics)
    return all(score.value < least for score, least in zip(scores, LEAST, strict=True))


def score_split(translator: Translator, setup: Setup, split: str, say: Say) -> list[Score]:
    """BLEU, chrF, TER and, if the recipe names a model, COMET of a translated split.

    Long lines are translated in pieces, as `translate` does, and leave out TER.
    """
    recipe, data = setup.recipe, setup.data
    translator.restart()
    lines, references = translated(translator, data, split), data.references(split)
    if count := translator.counts.cut:
        limit = translator.options.max_source_tokens
        say(f"{split}: {counted(count, 'line')} of more than {limit} subwords translated in pieces")
    usual = usual_metrics(recipe.text, recipe.training.validation.tokenize or "13a")
    metrics, reason = without_ter(usual, lines, references)
    if "ter" not in metrics:
        say(f"{split}: TER is left out, for {reason or 'it counts words between spaces'}")
    comet = comet_of(setup, split)
    return score_texts(lines, [references], scorers(metrics, comet=comet))
