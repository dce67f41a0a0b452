"""The records of a training: points over updates, tokens or hours."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from nmtdeep import files
from nmtdeep.analysis.measurement import Column, Measurement, grouped
from nmtdeep.checkpoint import RECORDS
from nmtdeep.errors import CheckpointError, UserError

Over = Literal["updates", "tokens", "hours"]

NATS = "nats per token"
# Figures of `train.jsonl`.
FIGURES = {
    "loss": Column("training loss", NATS),
    "nll": Column("training nll", NATS),
    "ppl": Column("training perplexity", log=True),
    "lr": Column("learning rate"),
    "gradient_norm": Column("gradient norm", log=True),
    "gradient_norm_encoder_first": Column("gradient norm, first encoder layer", log=True),
    "gradient_norm_encoder_last": Column("gradient norm, last encoder layer", log=True),
    "gradient_norm_decoder_first": Column("gradient norm, first decoder layer", log=True),
    "gradient_norm_decoder_last": Column("gradient norm, last decoder layer", log=True),
    "tokens_per_second": Column("target tokens per second"),
    "tokens_per_update": Column("target tokens per update"),
    "padding": Column("share of padding"),
    "memory": Column("memory", "bytes"),
    "valid_loss": Column("validation loss", NATS),
    "valid_nll": Column("validation nll", NATS),
    "valid_ppl": Column("validation perplexity", log=True),
    "valid_bleu": Column("validation BLEU"),
    "valid_chrf": Column("validation chrF"),
    "valid_comet": Column("validation COMET"),
}
USUAL = ("nll", "valid_nll", "valid_bleu")
# The key of each score's signature; of chrF only the beam is recorded.
SIGNATURES = {"valid_bleu": "signature", "valid_chrf": "", "valid_comet": "comet_signature"}


class Point(NamedTuple):
    """A figure after so many updates, target tokens and hours of a training; of a score, how."""

    run: Annotated[str, Column("run", role="curve")]
    figure: Annotated[str, Column("figure", role="panel")]
    update: int
    tokens: Annotated[float, Column("target tokens")]
    hours: Annotated[float, Column("hours of training")]
    value: Annotated[float, Column("value", role="y")]
    signature: str = ""


def measure(
    runs: Mapping[str, Path], figures: Sequence[str] = USUAL, over: Over = "updates"
) -> Measurement:
    """The points of some runs by name, a row for each run: where its training is.

    The picture has a panel for each of `figures` that a run has, with a curve for each run. Scores
    of different signatures have panels of their own.
    """
    rows = [point for name, run in runs.items() for point in read_records(name, run)]
    if not any(row.figure in figures for row in rows):
        raise UserError(f"no run recorded {' or '.join(figures)}", hint="choose another --figure")
    differences, drawn, panels = differing_parts(rows), [], dict(FIGURES)
    for name in figures:
        for row in (row for row in rows if row.figure == name):
            if row in differences:
                panel = f"{name}, {differences[row]}"
                panels[panel] = replace(FIGURES[name], unit=differences[row])
                drawn.append(row._replace(figure=panel))
            else:
                drawn.append(row)
    summary = [_summary(name, own, differences) for (name,), own in grouped(rows, "run").items()]
    x = "update" if over == "updates" else over
    read = {"records of": " and ".join(str(run / RECORDS) for run in runs.values())}
    title = f"Training, by {over}"
    return Measurement(title, rows, read, summary, drawn=drawn, x=x, panels=panels)


def differing_parts(rows: Sequence[Point]) -> dict[Point, str]:
    """What distinguishes scores that cannot be compared: the parts that not all signatures have."""
    found = {}
    for points in grouped(rows, "figure").values():
        parts = {point.signature: point.signature.split("|") for point in points}
        if len(parts) > 1:
            common = set.intersection(*map(set, parts.values()))
            for point in points:
                own = parts[point.signature]
                found[point] = " ".join(part for part in own if part not in common)
    return found


def names(paths: Sequence[Path]) -> dict[str, Path]:
    """Runs by the last part of their path; by the whole path if these are not distinct."""
    by_name = {path.resolve().name: path for path in paths}
    return by_name if len(by_name) == len(paths) else {str(path): path for path in paths}


def read_records(name: str, run: Path) -> list[Point]:
    """Every figure of a run's `train.jsonl` that is a finite number.

    The tokens and hours of a validation are those of the record before it, of the same update;
    in runs of older versions they are interpolated.
    """
    records, keys = list(_records(run)), ("update", "target_tokens", "seconds")
    # Only the records of training updates have `target_tokens` and no `hours`.
    of_updates = (each for each in records if each.keys() >= {*keys} and "hours" not in each)
    logged = [[record[key] for key in keys] for record in of_updates]
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
            signature = ""
            if figure in SIGNATURES:
                beam = f"beam:{record['beam']:g}" if "beam" in record else ""
                signature = "|".join(filter(None, (record.get(SIGNATURES[figure]), beam)))
            at = name, figure, int(update), tokens, hours
            points.append(Point(*at, record[figure], signature))
    return points


def _records(run: Path) -> Iterator[dict[str, Any]]:
    """The finite numbers of each line that is complete, and signatures."""
    if not run.is_dir():
        raise CheckpointError("no such run directory", where=run, hint="check the path")
    files.check_entries(run, [run / RECORDS])
    content = files.read_limited(run / RECORDS, hint="pass the directory of a run")
    for line in content.decode("utf-8", errors="replace").splitlines():
        with suppress(ValueError, RecursionError):
            record = json.loads(line, parse_int=float)
            if isinstance(record, dict):
                yield {
                    key: each
                    for key, each in record.items()
                    if (isinstance(each, float) and math.isfinite(each))
                    or (isinstance(each, str) and key in SIGNATURES.values())
                }


def _summary(
    run: str, rows: Sequence[Point], differences: Mapping[Point, str]
) -> dict[str, object]:
    figures, last = grouped(rows, "figure"), max(rows, key=lambda row: row.update)
    nll = figures[("nll",)][-1].value if ("nll",) in figures else None
    best = min(figures.get(("valid_nll",), ()), key=lambda row: row.value, default=None)
    scores = figures.get(("valid_bleu",), ())
    best_bleu = max(scores, key=lambda row: row.value, default=None)
    bleu = best_bleu and f"{best_bleu.value:.2f} at {best_bleu.update:,}"
    if best_bleu and best_bleu in differences:
        bleu = f"{bleu} ({differences[best_bleu]})"
    return {
        "run": run,
        "updates": last.update,
        "tokens": f"{last.tokens / 1e6:.1f}M",
        "hours": f"{last.hours:.2f}",
        "nll": nll,
        "best valid nll": best and f"{best.value:.3f} at {best.update:,}",
        "BLEU": bleu,
    }
