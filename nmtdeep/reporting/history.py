"""What a run directory says of its training: recipe, records, log, scores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtdeep import checkpoint, integrity
from nmtdeep.analysis.records import Point, Start, read_points, read_start
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
        began: where its own training began: at 0, or where it was grown.
        devices: what it was trained on, each once, in order.
        parameters: None where it has no checkpoint yet.
        scores: None where no training has ended with some.
        lacks: what could not be read, and why.
    """

    name: str
    path: Path
    recipe: Recipe
    points: Sequence[Point]
    began: Start
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
    log = _log(path / LOG)
    began = Start()
    try:
        points = read_points(name, path)
        began = read_start(path, update=_first_update(log))
    except CheckpointError:
        lacks.append(f"{name}: no records of a training (train.jsonl): no curves, no cost")
    count = None
    try:
        count = parameters(checkpoint.locate(path) / checkpoint.MODEL)
    except UserError as error:
        lacks.append(f"{name}: no model to look at: {error}")
    scores = stored_scores(path)
    return History(name, path, recipe, points, began, _devices(log), count, scores, lacks)


def _log(path: Path) -> str:
    """All of `train.log`; empty where there is none."""
    try:
        content = integrity.read_limited(path, cure="")
    except DataError:
        return ""
    return content.decode("utf-8", errors="replace")


def _devices(log: str) -> list[str]:
    """What each start of a training said that it runs on."""
    return list(dict.fromkeys(re.findall(r"^device +(\S.*)$", log, re.M)))


def _first_update(log: str) -> int:
    """Updates of the run that this one was grown from; 0 of any other."""
    first = re.search(r"^start +(\S.*)$", log, re.M)
    found = re.fullmatch(r"update (\d{1,15})\b.*", first[1]) if first else None
    return int(found[1]) if found else 0
