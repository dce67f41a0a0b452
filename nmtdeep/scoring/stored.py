"""The scores that a run keeps in `scores.json`, with the checksum of the weights they belong to."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from nmtdeep import checkpoint, files
from nmtdeep.errors import DataError
from nmtdeep.scoring.metrics import Score

SCORES = "scores.json"


class StoredScores(BaseModel):
    """The contents of `scores.json`.

    Attributes:
        checkpoint: name of the checkpoint that was scored.
        weights: SHA-256 of its `model.safetensors`.
        trained_to: name of the newest checkpoint at that time.
        beam: of the translations; None in older files.
    """

    checkpoint: str
    weights: str
    trained_to: str
    scores: dict[str, list[Score]]
    beam: int | None = None

    @property
    def title(self) -> str:
        return self.checkpoint + (f" (beam {self.beam})" if self.beam else "")


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


def store(scores: dict[str, list[Score]], run: Path, *, beam: int) -> StoredScores:
    """Write the scores of the weights that a run translates with."""
    model = checkpoint.locate(run)
    stored = StoredScores(
        checkpoint=model.name,
        weights=files.digest(model / checkpoint.MODEL),
        trained_to=list(checkpoint.saved(run).values())[-1].name,
        scores=scores,
        beam=beam,
    )
    with files.replace_file(run / SCORES) as partial:
        partial.write_text(f"{stored.model_dump_json(indent=1)}\n", encoding="utf-8")
    files.write_sums(run, SCORES)
    return stored
