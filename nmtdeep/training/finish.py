"""After the last update: choose the weights that the run means, then translate and score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nmtdeep import averaging, checkpoint, files
from nmtdeep.config import Recipe
from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.devices import resolve_device
from nmtdeep.errors import DataError, printable
from nmtdeep.scoring import Score, score_texts
from nmtdeep.scoring.metrics import label_of
from nmtdeep.scoring.report import score_table
from nmtdeep.training.run_directory import CANDIDATE, LOG, SCORES
from nmtdeep.training.state import Progress
from nmtdeep.training.step import resolve_precision
from nmtdeep.training.validation import Validator

METRICS = ("bleu", "chrf", "ter")
# A model whose first lines score below both has learned too little: it translates up to the limit.
LEAST = {"bleu": 1.0, "chrf": 20.0}
FIRST_LINES = 50


class StoredScores(BaseModel):
    """The contents of `scores.json`.

    Attributes:
        checkpoint: name of the checkpoint that was scored.
        weights: SHA-256 of its `model.safetensors`.
        trained_to: name of the newest checkpoint at that time.
        average_last: how many checkpoints the recipe wanted to average.
        scores: by set.
    """

    checkpoint: str
    weights: str
    trained_to: str
    average_last: int
    scores: dict[str, list[Score]]


def stored_scores(run: Path, model: Path) -> StoredScores | None:
    """The scores in a run's `scores.json` if they belong to the weights of checkpoint `model`.

    None if the file is missing or damaged, or belongs to other weights.
    """
    try:
        files.verify(run, SCORES, hint="delete it")
        scores = StoredScores.model_validate(files.read_json(run / SCORES, hint="delete it"))
    except (DataError, ValidationError):
        return None
    weights = model / checkpoint.MODEL
    return scores if weights.is_file() and scores.weights == files.digest(weights) else None


def finish(
    recipe: Recipe,
    *,
    data: Path,
    run: Path,
    device: str = "auto",
    final_scores: bool | None = None,
) -> None:
    """Choose between the mean of the last checkpoints and the best one, and score the choice.

    An average that is there already stays: a user made it, or an earlier call chose it. Messages go
    to stdout and to `train.log`.

    Args:
        final_scores: translate and score every held-out set into `scores.json`. None: only if the
            first lines of the validation set show that the model has learned something.
    """
    with (run / LOG).open("a", encoding="utf-8") as log:

        def say(text: str) -> None:
            print(printable(text))
            log.write(f"{printable(text)}\n")

        corpora = DataDirectory.open(data, verify=False)  # the training has verified it
        held_out = [split for split in corpora.splits if split != "train"]
        average_last = recipe.training.checkpoints.average_last
        stored = stored_scores(run, checkpoint.locate(run))
        if stored and stored.average_last != average_last:
            stored = None
            checkpoint.discard(run / checkpoint.AVERAGE)
        if stored and (not final_scores or set(held_out) <= set(stored.scores)):
            _show(stored, checkpoint.locate(run), say)
            return
        if not (run / checkpoint.AVERAGE).exists():
            _choose(recipe, corpora, run, device, say)
        if final_scores is False:
            return
        translator = Translator.load([run], DecodingOptions(device=device))
        if not final_scores and _has_learned_nothing(translator, corpora, held_out[0]):
            say(
                "no set is scored, because the model has learned too little so far; add "
                "--final-scores to score it anyway"
            )
            return
        scores = {split: score_split(translator, corpora, split) for split in held_out}
        _show(_store(scores, run, average_last), checkpoint.locate(run), say)


def _choose(
    recipe: Recipe, data: DataDirectory, run: Path, device: str, say: Callable[[str], None]
) -> None:
    """Make the recipe's average, and keep it unless `checkpoint_best` is better by `best_by`."""
    average, best = run / checkpoint.AVERAGE, run / checkpoint.BEST
    saved = list(checkpoint.saved(run).values())
    stages = [checkpoint.read_state(path).get("stage") for path in saved]
    # Checkpoints of earlier stages have fewer layers.
    count = min(recipe.training.checkpoints.average_last, stages.count(stages[-1]))
    if not count:
        return
    candidate = averaging.average(averaging.newest(run, count), run / CANDIDATE)
    mean = f"the mean of {', '.join(averaged(candidate))}"
    before = checkpoint.read_state(best)["score"] if (best / checkpoint.STATE).is_file() else None
    if before is None:
        candidate.rename(average)
        say(f"the run translates with {average.name}, {mean}")
        return
    recipe = recipe.at_stage(Progress.of(saved[-1]).stage)
    place = resolve_device(device)
    validate = Validator(data, recipe, dtype=resolve_precision(recipe.training.precision, place))
    best_by = recipe.training.validation.best_by
    after = validate(checkpoint.load(candidate).model.to(place)).score(best_by)
    shown = [
        f"loss {-score:.4f}" if best_by == "loss" else f"{score:.2f} {label_of(best_by)}"
        for score in (before, after)
    ]
    if after >= before:
        candidate.rename(average)
        say(
            f"the run translates with {average.name}, {mean}: {shown[1]} on valid; {best.name} has "
            f"{shown[0]}"
        )
    else:
        checkpoint.discard(candidate)
        say(
            f"the run translates with {best.name}, which is {best.resolve().name}: {shown[0]} on "
            f"valid; {mean} has {shown[1]} and was removed"
        )


def averaged(path: Path) -> list[str]:
    """Names of the checkpoints that a checkpoint is the mean of; empty if it is not an average."""
    return [source["checkpoint"] for source in checkpoint.read_state(path).get("inputs", [])]


def _has_learned_nothing(translator: Translator, data: DataDirectory, split: str) -> bool:
    """Whether all scores of the first lines of a set are below `LEAST`."""
    translations = translated(translator, data, split, first=FIRST_LINES)
    scores = score_texts(translations, [data.references(split)[:FIRST_LINES]], list(LEAST))
    return all(score.value < LEAST[score.metric] for score in scores)


def score_split(translator: Translator, data: DataDirectory, split: str) -> list[Score]:
    """BLEU, chrF and TER of a translated split against its references."""
    return score_texts(translated(translator, data, split), [data.references(split)], METRICS)


def translated(
    translator: Translator, data: DataDirectory, split: str, *, first: int | None = None
) -> list[str]:
    """Translations of a split, or of its `first` lines, in the form of its references."""
    raw = data.pipeline.reference_form == "raw"
    sources = data.sources(split)[:first]
    return [line.text if raw else line.tokenized for line in translator.translate(sources)]


def _store(scores: dict[str, list[Score]], run: Path, average_last: int) -> StoredScores:
    """Write the scores of the run's weights to `scores.json`."""
    model = checkpoint.locate(run)
    stored = StoredScores(
        checkpoint=model.name,
        weights=files.digest(model / checkpoint.MODEL),
        trained_to=list(checkpoint.saved(run).values())[-1].name,
        average_last=average_last,
        scores=scores,
    )
    with files.replace_file(run / SCORES) as partial:
        partial.write_text(json.dumps(stored.model_dump(), indent=1) + "\n", encoding="utf-8")
    files.write_sums(run, SCORES)
    return stored


def _show(stored: StoredScores, model: Path, say: Callable[[str], None]) -> None:
    inputs = averaged(model)
    mean = f", the mean of {', '.join(inputs)}" if inputs else ""
    for line in (f"scores of {stored.checkpoint}{mean}", *score_table(stored.scores)):
        say(line)
