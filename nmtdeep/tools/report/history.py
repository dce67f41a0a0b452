"""The files of a run directory: recipe, records, log, scores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtdeep import checkpoint, files
from nmtdeep.analysis.records import Point, read_records
from nmtdeep.config.load import read_config
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import CheckpointError, DataError, UserError
from nmtdeep.inspection import parameters
from nmtdeep.scoring.stored import SCORES, StoredScores, stored_scores
from nmtdeep.training.run_directory import LOG
from nmtdeep.training.state import Progress


@dataclass(frozen=True)
class RunHistory:
    """A run.

    Attributes:
        name: in the report.
        records: figures of its training; empty without any.
        devices: of its training, each once, in order.
        joules: of its training; None where they could not be read.
        parameters: their number; None without a checkpoint.
        scores: of the run's checkpoint; None if it was not scored.
        omissions: what cannot be shown, and why.
    """

    name: str
    path: Path
    recipe: Recipe
    records: Sequence[Point]
    devices: Sequence[str]
    joules: float | None
    parameters: int | None
    scores: StoredScores | None
    omissions: Sequence[str]

    def values(self, figure: str) -> list[float]:
        return [point.value for point in self.records if point.figure == figure]

    def last(self, name: str) -> float | None:
        """The update, hours or tokens at the end of the records; None without records."""
        last = max(self.records, key=lambda point: point.update, default=None)
        return None if last is None else float(getattr(last, name))


def read(name: str, path: Path) -> RunHistory:
    """Read a run directory, of which only the recipe is required.

    Raises:
        UserError: if it is not a run directory, or its recipe or another file is invalid.
    """
    config = path / checkpoint.CONFIG
    if (path / checkpoint.STATE).is_file() or not (config.is_file() or checkpoint.saved(path)):
        hint = "pass the --out directory of nmtdeep train"
        raise CheckpointError("not a run directory", where=path, hint=hint)
    files.check_entries(path, [path / file for file in (checkpoint.CONFIG, LOG, SCORES)])
    omissions: list[str] = []
    recipe = read_config(config if config.is_file() else checkpoint.locate(path))
    records: list[Point] = []
    try:
        records = read_records(name, path)
    except UserError:
        omissions.append(f"{name}: no records of a training (train.jsonl): no curves, no cost")
    count = scores = joules = None
    try:
        if saved := [*checkpoint.saved(path).values()]:
            joules = Progress.from_json(checkpoint.read_state(saved[-1])).joules
        model = checkpoint.locate(path)
        count, scores = parameters(model / checkpoint.MODEL), stored_scores(path, model)
    except UserError as error:
        omissions.append(f"{name}: no model: {error}")
    devices = _devices(path / LOG)
    return RunHistory(name, path, recipe, records, devices, joules, count, scores, omissions)


def _devices(log: Path) -> list[str]:
    """The device of each start of a training; empty without a log."""
    try:
        content = files.read_limited(log, hint="")
    except DataError:
        return []
    text = content.decode("utf-8", errors="replace")
    return list(dict.fromkeys(re.findall(r"^device +(\S.*)$", text, re.M)))
