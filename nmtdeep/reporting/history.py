"""What a run directory says of its training: recipe, records, log, scores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtdeep import checkpoint, files
from nmtdeep.analysis.records import Point, read_points
from nmtdeep.config import Recipe
from nmtdeep.config.load import read_config
from nmtdeep.errors import CheckpointError, DataError, UserError
from nmtdeep.inspection.runs import parameters
from nmtdeep.training.finish import StoredScores, stored_scores
from nmtdeep.training.run_directory import LOG, SCORES


@dataclass(frozen=True)
class History:
    """A run.

    Attributes:
        name: what the report calls it.
        points: figures of its training; empty where it has no records.
        devices: what it was trained on, each once, in order.
        parameters: None where it has no checkpoint yet.
        scores: of the checkpoint that the run means; None if it was not scored.
        lacks: what could not be read, and why.
    """

    name: str
    path: Path
    recipe: Recipe
    points: Sequence[Point]
    devices: Sequence[str]
    parameters: int | None
    scores: StoredScores | None
    lacks: Sequence[str]

    @property
    def has_model(self) -> bool:
        """Whether there is a checkpoint to look at."""
        return self.parameters is not None


def read(name: str, path: Path) -> History:
    """Read a run directory; only its recipe has to be there.

    Raises:
        UserError: if it is none, or its recipe or a file in it is not to be used.
    """
    config = path / checkpoint.CONFIG
    if (path / checkpoint.STATE).is_file() or not (config.is_file() or checkpoint.saved(path)):
        raise CheckpointError(f"{path} is no run directory: give what `train --out` named")
    checkpoint.check_entries(path, [path / one for one in (checkpoint.CONFIG, LOG, SCORES)])
    lacks: list[str] = []
    recipe = read_config(config if config.is_file() else checkpoint.locate(path))
    points: list[Point] = []
    try:
        points = read_points(name, path)
    except CheckpointError:
        lacks.append(f"{name}: no records of a training (train.jsonl): no curves, no cost")
    count = scores = None
    try:
        model = checkpoint.locate(path)
        count, scores = parameters(model / checkpoint.MODEL), stored_scores(path, model)
    except UserError as error:
        lacks.append(f"{name}: no model to look at: {error}")
    return History(name, path, recipe, points, _devices(path / LOG), count, scores, lacks)


def _devices(log: Path) -> list[str]:
    """What each start of a training said that it runs on; empty where there is no log."""
    try:
        content = files.read_limited(log, hint="")
    except DataError:
        return []
    text = content.decode("utf-8", errors="replace")
    return list(dict.fromkeys(re.findall(r"^device +(\S.*)$", text, re.M)))
