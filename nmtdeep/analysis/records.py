"""What a training wrote down while it ran: its records as points over updates, tokens or hours."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nmtdeep import checkpoint, files
from nmtdeep.analysis.findings import Findings, signed
from nmtdeep.analysis.panels import Curve, Curves, Picture
from nmtdeep.errors import CheckpointError, DataError, UserError
from nmtdeep.tables import table
from nmtdeep.training.run_directory import RECORDS

Over = Literal["updates", "tokens", "hours"]

# Figures of `train.jsonl` by kind, and how a picture calls them.
TRAINING = {
    "loss": "training loss per token",
    "nll": "training nll per token",
    "ppl": "training perplexity",
    "lr": "learning rate",
    "gradient_norm": "gradient norm",
    "tokens_per_second": "target tokens per second",
    "tokens_per_update": "target tokens per update",
    "padding": "share of padding",
    "memory": "bytes of memory",
}
VALIDATION = {
    "valid_loss": "validation loss per token",
    "valid_nll": "validation nll per token",
    "valid_ppl": "validation perplexity",
    "valid_bleu": "validation BLEU",
    "valid_chrf": "validation chrF",
}
FIGURES = TRAINING | VALIDATION
USUAL = ("nll", "valid_nll", "valid_bleu")
AXES = {"updates": "update", "tokens": "target tokens, millions", "hours": "hours of training"}


@dataclass(frozen=True)
class Point:
    """A figure at one place of a training.

    Attributes:
        tokens: target tokens trained on until then.
        hours: of training until then.
    """

    run: str
    figure: str
    update: int
    tokens: float
    hours: float
    value: float


def names(paths: Sequence[Path]) -> dict[str, Path]:
    """Runs by the last part of their path; by all of it where these are not distinct.

    Raises:
        UserError: if one is named twice.
    """
    places = [path.resolve() for path in paths]
    for place, path in zip(places, paths, strict=True):
        if places.count(place) > 1:
            raise UserError(f"{path} is named twice: name each run once")
    short = [place.name for place in places]
    distinct = len(set(short)) == len(short) and all(short)
    return dict(zip(short if distinct else map(str, paths), paths, strict=True))


def read_points(name: str, run: Path) -> list[Point]:
    """Every figure of a run's `train.jsonl`; figures that are no finite numbers are left out.

    A validation stands at the tokens and hours of its update, between those of the log lines
    around it.

    Raises:
        CheckpointError: if the run has no records.
    """
    records = list(_records(run))
    places = ("update", "target_tokens", "seconds")
    logged = [
        one
        for one in records
        if one.get("kind") == "train" and all(math.isfinite(_number(one, key)) for key in places)
    ]
    if not logged:
        raise CheckpointError(
            f"{run / RECORDS} has no record of a training: give the directory of a run that has "
            "written its first log line"
        )
    updates = [0.0, *(_number(one, "update") for one in logged)]
    tokens = [0.0, *(_number(one, "target_tokens") for one in logged)]
    seconds = [0.0, *(_number(one, "seconds") for one in logged)]
    points = []
    for record in records:
        figures = TRAINING if record.get("kind") == "train" else VALIDATION
        for figure in figures:
            value, update = _number(record, figure), _number(record, "update")
            if math.isfinite(value) and math.isfinite(update):
                at = [float(np.interp(update, updates, one)) for one in (tokens, seconds)]
                points.append(Point(name, figure, int(update), at[0], at[1] / 3600, value))
    return points


def _records(run: Path) -> Iterator[dict[str, Any]]:
    """The objects of `train.jsonl`; a line that a kill cut short is passed over."""
    if not run.is_dir():
        raise CheckpointError(f"{run}: no such run directory: check the path")
    checkpoint.check_entries(run, [run / RECORDS])
    try:
        content = files.read_limited(run / RECORDS, hint="give the directory of a run")
    except DataError as error:
        raise CheckpointError(str(error)) from error
    for line in content.decode("utf-8", errors="replace").splitlines():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _number(record: Mapping[str, Any], name: str) -> float:
    """NaN for what is none."""
    value = record.get(name)
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return math.nan


def find(runs: Mapping[str, Path], figures: Sequence[str], over: Over) -> Findings:
    """The curves of some runs.

    Args:
        runs: directories by name.
        figures: keys of `FIGURES`; those that no run has are left out.
        over: what the x axis of the picture counts.
    """
    rows = [point for name, run in runs.items() for point in read_points(name, run)]
    columns = {"run": "left"} | dict.fromkeys(
        ("updates", "tokens", "hours", "nll", "best valid nll", "BLEU"), "right"
    )
    shown = [_summary([row for row in rows if row.run == name]) for name in runs]
    wanted = [figure for figure in figures if any(row.figure == figure for row in rows)]
    made = {"records of": " and ".join(str(run / RECORDS) for run in runs.values())}
    return Findings(
        [row for row in rows if row.figure in wanted],
        [table(columns, shown)],
        lambda: _picture(rows, wanted, over),
        made,
        signed(made),
    )


def _summary(rows: Sequence[Point]) -> tuple[object, ...]:
    last = max(rows, key=lambda row: row.update)
    training = [row for row in rows if row.figure == "nll"]
    return (
        last.run,
        f"{last.update:,}",
        f"{last.tokens / 1e6:.1f}M",
        f"{last.hours:.2f}",
        f"{training[-1].value:.3f}" if training else None,
        _best(min, (row for row in rows if row.figure == "valid_nll"), 3),
        _best(max, (row for row in rows if row.figure == "valid_bleu"), 2),
    )


def _best(choose: Any, rows: Iterable[Point], digits: int) -> str | None:
    """The best figure, and the update that has it."""
    found = list(rows)
    if not found:
        return None
    best = choose(found, key=lambda row: row.value)
    return f"{best.value:.{digits}f} at {best.update:,}"


def _picture(rows: Sequence[Point], figures: Sequence[str], over: Over) -> Picture:
    """One panel for each figure, one line style for each run."""
    panels = []
    for figure in figures:
        curves = []
        for run in dict.fromkeys(row.run for row in rows):
            found = [row for row in rows if (row.run, row.figure) == (run, figure)]
            if found:
                places = [_place(row, over) for row in found]
                curves.append(Curve(places, [row.value for row in found], run))
        log = figure in ("ppl", "valid_ppl", "gradient_norm")
        whole = over == "updates"
        panels.append(Curves(curves, AXES[over], FIGURES[figure], log=log, whole=whole))
    return Picture(panels)


def _place(row: Point, over: Over) -> float:
    return {"updates": row.update, "tokens": row.tokens / 1e6, "hours": row.hours}[over]
