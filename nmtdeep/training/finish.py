"""After the last update: average checkpoints and score the result on every test set."""

from __future__ import annotations

import json
from pathlib import Path

from nmtdeep import averaging, checkpoint
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.decoding.translator import Translator
from nmtdeep.scoring import Score, score_texts

SCORES = "scores.json"


def finish(
    recipe: Recipe, *, data: Path, run: Path, device: str = "auto", quiet: bool = False
) -> dict[str, list[Score]]:
    """Average as the recipe says, translate validation and test sets, write and print the scores.

    Returns:
        scores by split, of the averaged checkpoint where there is one, else of the best.
    """
    wanted = recipe.training.checkpoints.average_last
    if not wanted:
        return {}
    available = len(checkpoint.saved(run))
    inputs = averaging.newest(run, min(wanted, available))
    averaging.average(inputs, run / checkpoint.AVERAGE)
    corpora = DataDirectory.open(data)
    translator = Translator.load([run], device=device)
    scores = {
        split: score_split(translator, corpora, split)
        for split in corpora.splits
        if split != "train"
    }
    report = {
        "checkpoint": checkpoint.AVERAGE,
        "averaged": [path.name for path in inputs],
        "scores": {
            split: [{"name": s.name, "value": s.value, "signature": s.signature} for s in found]
            for split, found in scores.items()
        },
    }
    (run / SCORES).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if not quiet:
        print(f"averaged {', '.join(path.name for path in inputs)} into {checkpoint.AVERAGE}")
        for split, found in scores.items():
            for score in found:
                print(f"{split}: {score.name} {score.value:.2f}  {score.signature}")
    return scores


def score_split(translator: Translator, corpora: DataDirectory, split: str) -> list[Score]:
    """BLEU, chrF and TER of a translated split against its references."""
    raw = corpora.pipeline.reference_form == "raw"
    translations = [
        one.text if raw else one.tokenised for one in translator.translate(corpora.sources(split))
    ]
    return score_texts(translations, [corpora.references(split)], ("bleu", "chrf", "ter"))
