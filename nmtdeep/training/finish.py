"""After the last update: choose the checkpoint that the run means, translate and score with it."""

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
from nmtdeep.scoring.rendering import score_table
from nmtdeep.training.run_directory import LOG, SCORES
from nmtdeep.training.state import Progress
from nmtdeep.training.update import resolve_precision
from nmtdeep.training.validation import Validator

METRICS = ("bleu", "chrf", "ter")
# A model below both has learned next to nothing; its translations run to the length limit.
LEAST = {"bleu": 1.0, "chrf": 20.0}
PROBE = 50  # lines that tell
Say = Callable[[str], None]


class StoredScores(BaseModel):
    """The contents of `scores.json`.

    Attributes:
        checkpoint: name of the checkpoint that was scored.
        weights: SHA-256 of its `model.safetensors`.
        trained_to: name of the newest checkpoint at that time.
        average_last: how many checkpoints the recipe asked to average.
        averaged: names of the checkpoints that the scored one is the mean of; often none.
        scores: by set.
    """

    checkpoint: str
    weights: str
    trained_to: str
    average_last: int
    averaged: list[str]
    scores: dict[str, list[Score]]


def finish(
    recipe: Recipe,
    *,
    data: Path,
    run: Path,
    device: str = "auto",
    final_scores: bool | None = None,
) -> None:
    """Choose between the mean of the last checkpoints and the best one; score the chosen one.

    Where the recipe asks for an average, it is measured on the validation set and removed if the
    best checkpoint is better by `best_by`, so that the run directory means the better of the two.
    An average that the user made stays. What is said goes to stdout and to `train.log`.

    Args:
        final_scores: translate and score every held-out set into `scores.json`. None: only if some
            lines of the validation set show that the model has learned something.
    """
    with (run / LOG).open("a", encoding="utf-8") as log:

        def say(text: str) -> None:
            print(printable(text))
            log.write(f"{printable(text)}\n")

        newest = list(checkpoint.saved(run).values())[-1]
        corpora = DataDirectory.open(data)
        stored = stored_scores(run, checkpoint.locate(run))
        wanted = recipe.training.checkpoints.average_last
        if stored and (stored.trained_to, stored.average_last) == (newest.name, wanted):
            missing = set(corpora.splits) - {"train", *stored.scores}
            if not (missing and final_scores):
                _show(stored, say)
                return
        _choose(recipe, corpora, run, newest, device, say)
        if final_scores is False:
            return
        found = _scored(recipe, corpora, run, newest, device, force=bool(final_scores), say=say)
        if found is None:
            return
        with files.replace_file(run / SCORES) as partial:
            partial.write_text(json.dumps(found.model_dump(), indent=1) + "\n", encoding="utf-8")
        files.write_sums(run, SCORES)
        _show(found, say)


def stored_scores(run: Path, model: Path) -> StoredScores | None:
    """The scores in a run's `scores.json` if they belong to the weights of checkpoint `model`.

    None where the file is missing, broken or changed, or has the scores of other weights.
    """
    found = _read_scores(run)
    return found if found and _are_of(found, model) else None


def _read_scores(run: Path) -> StoredScores | None:
    try:
        files.verify(run, SCORES, hint="delete it")
        return StoredScores.model_validate(files.read_json(run / SCORES, hint="delete it"))
    except (DataError, ValidationError):
        return None


def _are_of(scores: StoredScores, model: Path) -> bool:
    file = model / checkpoint.MODEL
    return file.is_file() and scores.weights == files.digest(file)


def _choose(
    recipe: Recipe, data: DataDirectory, run: Path, newest: Path, device: str, say: Say
) -> None:
    """Leave `checkpoint_average` in the run if it is better than `checkpoint_best`."""
    average, best = run / checkpoint.AVERAGE, run / checkpoint.BEST
    inputs = _to_average(recipe, run)
    if not inputs or _is_users(run, average, newest, inputs):
        return
    averaging.average(inputs, average)
    mean = f"the mean of {', '.join(path.name for path in inputs)}"
    before = checkpoint.read_state(best)["score"] if (best / checkpoint.STATE).is_file() else None
    if before is None:
        say(f"the run translates with {average.name}, {mean}")
        return
    stage = recipe.at_stage(Progress.of(newest).stage)
    place = resolve_device(device)
    dtype = resolve_precision(stage.training.precision, place)
    validate = Validator(data, stage, dtype=dtype)
    after = validate(checkpoint.load(average).model.to(place)).score(
        stage.training.validation.best_by
    )
    if after >= before:
        say(
            f"the run translates with {average.name}, {mean}: {_shown(after, stage)} on valid; "
            f"{best.name} has {_shown(before, stage)}"
        )
        return
    checkpoint.discard(average)
    say(
        f"the run translates with {best.name}, which is {best.resolve().name}: "
        f"{_shown(before, stage)} on valid; {mean} has "
        f"{_shown(after, stage)} and was removed"
    )


def _to_average(recipe: Recipe, run: Path) -> list[Path]:
    """The checkpoints that the recipe wants averaged, as far as the last stage has so many."""
    stages = [checkpoint.read_state(path).get("stage") for path in checkpoint.saved(run).values()]
    wanted = min(recipe.training.checkpoints.average_last, stages.count(stages[-1]))
    return averaging.newest(run, wanted) if wanted else []


def _is_users(run: Path, average: Path, newest: Path, inputs: list[Path]) -> bool:
    """Whether the average was made by hand: after the scores, or of other checkpoints."""
    if not (average / checkpoint.STATE).is_file():
        return False
    scores = _read_scores(run)
    if scores and scores.trained_to == newest.name:
        return not _are_of(scores, average)
    return averaged(average) != [path.name for path in inputs]


def averaged(path: Path) -> list[str]:
    """Names of the checkpoints that a checkpoint is the mean of; none if it is no average."""
    return [one["checkpoint"] for one in checkpoint.read_state(path).get("inputs", [])]


def _shown(score: float, recipe: Recipe) -> str:
    """A validation's figure, larger is better, in words."""
    best_by = recipe.training.validation.best_by
    return f"loss {-score:.4f}" if best_by == "loss" else f"{score:.2f} {label_of(best_by)}"


def _scored(
    recipe: Recipe,
    data: DataDirectory,
    run: Path,
    newest: Path,
    device: str,
    *,
    force: bool,
    say: Say,
) -> StoredScores | None:
    """Translate and score the validation set and the test sets; None if that is not worth it."""
    model = checkpoint.locate(run)
    translator = Translator.load([run], DecodingOptions(device=device))
    valid, *tests = (split for split in data.splits if split != "train")
    if not force and _has_learned_nothing(translator, data, valid):
        say(
            "no set is scored, because the model has learned too little so far; add --final-scores "
            "to score them all the same"
        )
        return None
    return StoredScores(
        checkpoint=model.name,
        weights=files.digest(model / checkpoint.MODEL),
        trained_to=newest.name,
        average_last=recipe.training.checkpoints.average_last,
        averaged=averaged(model),
        scores={split: score_split(translator, data, split) for split in (valid, *tests)},
    )


def _has_learned_nothing(translator: Translator, data: DataDirectory, split: str) -> bool:
    """Whether both scores of the first lines of a set are below `LEAST`."""
    made = translated(translator, data, split, first=PROBE)
    found = score_texts(made, [data.references(split)[:PROBE]], list(LEAST))
    return all(one.value < LEAST[one.metric] for one in found)


def score_split(translator: Translator, corpora: DataDirectory, split: str) -> list[Score]:
    """BLEU, chrF and TER of a translated split against its references."""
    translations = translated(translator, corpora, split)
    return score_texts(translations, [corpora.references(split)], METRICS)


def translated(
    translator: Translator, corpora: DataDirectory, split: str, *, first: int | None = None
) -> list[str]:
    """A split's sources, or the `first` of them, translated and spelt as its references are."""
    raw = corpora.pipeline.reference_form == "raw"
    sources = corpora.sources(split)[:first]
    return [one.text if raw else one.tokenized for one in translator.translate(sources)]


def _show(report: StoredScores, say: Say) -> None:
    mean = f", the mean of {', '.join(report.averaged)}" if report.averaged else ""
    say(f"scores of {report.checkpoint}{mean}")
    for line in score_table(report.scores):
        say(line)
