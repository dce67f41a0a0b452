"""After the last update: average checkpoints, translate and score validation and test sets."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nmtdeep import averaging, checkpoint, integrity
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import DataError, printable
from nmtdeep.scoring import Score, score_texts
from nmtdeep.training.run_directory import SCORES

METRICS = ("bleu", "chrf", "ter")


def finish(recipe: Recipe, *, data: Path, run: Path, device: str = "auto") -> None:
    """Average as the recipe says, translate every held-out set, print and write the scores.

    The checkpoint that is scored is the one that the run directory means: the average where the
    recipe asks for one, else the best. `scores.json` holds the scores with their signatures; if it
    is newer than the last checkpoint there is nothing to do but to print it.
    """
    report_file = run / SCORES
    newest = list(checkpoint.saved(run).values())[-1]
    averaged = _averaged(recipe, run)
    if not _stands(report_file, newest, averaged):
        content = json.dumps(
            integrity.sealed(_report(averaged, data, run, newest, device)), indent=1
        )
        beside = report_file.with_name(f".{SCORES}.partial")
        beside.write_text(content + "\n", encoding="utf-8")
        beside.replace(report_file)
    report = StoredScores.model_validate(integrity.read_json(report_file, cure="delete it"))
    _show(report)
    if averaged and recipe.training.validation.best_by == "bleu":
        _compare_with_best(report, run / checkpoint.BEST)


class StoredScore(BaseModel):
    """One of them."""

    metric: str
    value: float
    signature: str


class StoredScores(BaseModel):
    """What `scores.json` holds."""

    checkpoint: str
    trained_to: str
    averaged: list[str]
    scores: dict[str, list[StoredScore]]


def stored_scores(run: Path) -> StoredScores | None:
    """What `scores.json` of a run holds; None where it is missing, broken or changed."""
    try:
        stored = integrity.read_json(run / SCORES, cure="delete it")
        return StoredScores.model_validate(stored)
    except (DataError, ValidationError):
        return None


def _averaged(recipe: Recipe, run: Path) -> list[Path]:
    """The checkpoints that the recipe wants averaged, as far as the last stage has so many."""
    stages = [checkpoint.read_state(path).get("stage") for path in checkpoint.saved(run).values()]
    wanted = min(recipe.training.checkpoints.average_last, stages.count(stages[-1]))
    return averaging.newest(run, wanted) if wanted else []


def _stands(report_file: Path, newest: Path, averaged: list[Path]) -> bool:
    """Whether the scores on disk are as written, of the newest checkpoint and this average."""
    try:
        stored = integrity.read_json(report_file, cure="delete it")
        report = StoredScores.model_validate(stored)
    except (DataError, ValidationError):
        return False
    if averaged and not (newest.parent / checkpoint.AVERAGE / checkpoint.STATE).is_file():
        return False
    names = [path.name for path in averaged]
    sealed = integrity.SEAL in stored
    return sealed and report.trained_to == newest.name and report.averaged == names


def _report(
    averaged: list[Path], data: Path, run: Path, newest: Path, device: str
) -> dict[str, object]:
    if averaged:
        averaging.average(averaged, run / checkpoint.AVERAGE)
    corpora = DataDirectory.open(data)
    translator = Translator.load([run], device=device)
    return {
        "checkpoint": checkpoint.locate(run).name,
        "trained_to": newest.name,
        "averaged": [path.name for path in averaged],
        "scores": {
            split: [
                {"metric": score.name, "value": score.value, "signature": score.signature}
                for score in score_split(translator, corpora, split)
            ]
            for split in corpora.splits
            if split != "train"
        },
    }


def score_split(translator: Translator, corpora: DataDirectory, split: str) -> list[Score]:
    """BLEU, chrF and TER of a translated split against its references."""
    translations = translated(translator, corpora, split)
    return score_texts(translations, [corpora.references(split)], METRICS)


def translated(translator: Translator, corpora: DataDirectory, split: str) -> list[str]:
    """A split's sources, translated and spelt as its references are."""
    raw = corpora.pipeline.reference_form == "raw"
    return [
        one.text if raw else one.tokenised for one in translator.translate(corpora.sources(split))
    ]


def _show(report: StoredScores) -> None:
    if report.averaged:
        print(printable(f"{report.checkpoint}: mean of {', '.join(report.averaged)}"))
    for split, found in report.scores.items():
        for score in found:
            line = f"{split}: {score.metric} {score.value:.2f}  {score.signature}"
            print(printable(line))


def _compare_with_best(report: StoredScores, best: Path) -> None:
    """Say so if the mean is worse than one of its run, as after a training that was cut short."""
    if not (best / checkpoint.STATE).is_file():
        return
    before = checkpoint.read_state(best).get("score")
    now = next((one.value for one in report.scores.get("valid", []) if one.metric == "bleu"), None)
    if before is not None and now is not None and now < before:
        name = printable(str(best.parent))
        print(
            f"warning: the mean has {now:.2f} BLEU on valid, and {best.name} had {before:.2f}: the "
            f"averaged checkpoints are far apart; translate with -m {name}/{best.name}, or average "
            f"fewer: nmtdeep average-checkpoints {name} --last 2 --overwrite"
        )
