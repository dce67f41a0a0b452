"""The records of a training: points over updates, tokens or hours."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from nmtdeep import files
from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, grouped
from nmtdeep.errors import CheckpointError, UserError
from nmtdeep.tables import table
from nmtdeep.training.run_directory import RECORDS

Over = Literal["updates", "tokens", "hours"]

# Figures of `train.jsonl`, and their labels in a picture.
FIGURES = {
    "loss": "training loss per token",
    "nll": "training nll per token",
    "ppl": "training perplexity",
    "lr": "learning rate",
    "gradient_norm": "gradient norm",
    "gradient_norm_encoder_first": "gradient norm, first encoder layer",
    "gradient_norm_encoder_last": "gradient norm, last encoder layer",
    "gradient_norm_decoder_first": "gradient norm, first decoder layer",
    "gradient_norm_decoder_last": "gradient norm, last decoder layer",
    "tokens_per_second": "target tokens per second",
    "tokens_per_update": "target tokens per update",
    "padding": "share of padding",
    "memory": "bytes of memory",
    "valid_loss": "validation loss per token",
    "valid_nll": "validation nll per token",
    "valid_ppl": "validation perplexity",
    "valid_bleu": "validation BLEU",
    "valid_chrf": "validation chrF",
    "valid_comet": "validation COMET",
}
USUAL = ("nll", "valid_nll", "valid_bleu")
LOGARITHMIC = ("ppl", "valid_ppl", *(name for name in FIGURES if name.startswith("gradient_norm")))
COLUMNS = ("run", "updates", "tokens", "hours", "nll", "best valid nll", "BLEU")
# The x axis: the column and its label.
AXES: dict[Over, tuple[str, str]] = {
    "updates": ("update", "update"),
    "tokens": ("millions", "target tokens, millions"),
    "hours": ("hours", "hours of training"),
}


class Point(NamedTuple):
    """A figure after so many updates, target tokens and hours of a training."""

    run: str
    figure: str
    update: int
    tokens: float
    hours: float
    value: float

    @property
    def millions(self) -> float:
        """Target tokens in millions."""
        return self.tokens / 1e6


def measure(
    runs: Mapping[str, Path], figures: Sequence[str] = USUAL, over: Over = "updates"
) -> Measurement:
    """The points of some runs by name, a row for each run: where its training is; see `draw`."""
    rows = [point for name, run in runs.items() for point in read_points(name, run)]
    read = {"records of": " and ".join(str(run / RECORDS) for run in runs.values())}
    tables = [table(COLUMNS, map(_summary, grouped(rows, "run").values()))]
    return Measurement(rows, read, tables, partial(draw, rows, figures=figures, over=over))


def draw(
    rows: Sequence[Point], figure: pictures.Figure, *, figures: Sequence[str], over: Over
) -> None:
    """One panel for each of `figures` that a run has, `over` the x axis; a curve for each run."""
    recorded = grouped(rows, "figure")
    shown = [name for name in figures if name in recorded]
    if not shown:
        raise UserError(f"no run recorded {' or '.join(figures)}", hint="choose another --figure")
    panels = [
        pictures.Panel(
            FIGURES[name], "value", {"figure": name}, "log" if name in LOGARITHMIC else "curves"
        )
        for name in shown
    ]
    column, label = AXES[over]
    pictures.plot(figure, grouped(rows, "run"), over=panels, x=column, label=label)


def names(paths: Sequence[Path]) -> dict[str, Path]:
    """Runs by the last part of their path; by the whole path if these are not distinct."""
    by_name = {path.resolve().name: path for path in paths}
    return by_name if len(by_name) == len(paths) else {str(path): path for path in paths}


def read_points(name: str, run: Path) -> list[Point]:
    """Every figure of a run's `train.jsonl` that is a finite number.

    The tokens and hours of a validation are those of the record before it, of the same update;
    in runs of older versions they are interpolated.
    """
    records = list(_records(run))
    keys = ("update", "target_tokens", "seconds")
    logged = [
        [record[key] for key in keys]
        for record in records
        if record.keys() >= {*keys} and "hours" not in record
    ]
    if not logged:
        hint = "pass the directory of a run that has written its first log line"
        raise CheckpointError("no record of a training", where=run / RECORDS, hint=hint)
    at_update, at_tokens, at_seconds = np.array([[0.0, 0.0, 0.0], *logged]).T
    points = []
    for record in (record for record in records if "update" in record):
        update = record["update"]
        tokens = float(np.interp(update, at_update, at_tokens))
        hours = float(np.interp(update, at_update, at_seconds)) / 3600
        for figure in filter(record.__contains__, FIGURES):
            points.append(Point(name, figure, int(update), tokens, hours, record[figure]))
    return points


def _records(run: Path) -> Iterator[dict[str, float]]:
    """The finite numbers of each line, except lines that an interrupted training left incomplete.

    Only the records of training updates have `target_tokens` and no `hours`.
    """
    if not run.is_dir():
        raise CheckpointError("no such run directory", where=run, hint="check the path")
    files.check_entries(run, [run / RECORDS])
    content = files.read_limited(run / RECORDS, hint="pass the directory of a run")
    for line in content.decode("utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):
            record = json.loads(line, parse_int=float)
            if isinstance(record, dict):
                numbers = {key: each for key, each in record.items() if isinstance(each, float)}
                yield {key: each for key, each in numbers.items() if math.isfinite(each)}


def _summary(rows: Sequence[Point]) -> tuple[object, ...]:
    figures = grouped(rows, "figure")
    last = max(rows, key=lambda row: row.update)
    nll = figures["nll"][-1] if "nll" in figures else None
    best = min(figures.get("valid_nll", ()), key=lambda row: row.value, default=None)
    bleu = max(figures.get("valid_bleu", ()), key=lambda row: row.value, default=None)
    sizes = last.run, f"{last.update:,}", f"{last.millions:.1f}M", f"{last.hours:.2f}"
    lowest = best and f"{best.value:.3f} at {best.update:,}"
    highest = bleu and f"{bleu.value:.2f} at {bleu.update:,}"
    return *sizes, nll and f"{nll.value:.3f}", lowest, highest
