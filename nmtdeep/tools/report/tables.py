"""The tables of a report: overview, scores, hardware and cost; and the recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.render import differences, display
from nmtdeep.scoring import Score
from nmtdeep.scoring.metrics import METRICS, heading_of
from nmtdeep.scoring.report import signed_by
from nmtdeep.tools.report.history import RunHistory
from nmtdeep.tools.report.page import PageTable, TableCell
from nmtdeep.units import duration, kwh, short, size

BLEU = "valid_bleu"


def number(value: float | None, show: Callable[[float], str]) -> TableCell:
    """A cell with `value` as `show` formats it, or a dash."""
    return TableCell("-") if value is None else TableCell(show(value), float(value))


def overview(histories: Iterable[RunHistory]) -> PageTable:
    """A row for each run: the model, how long it was trained, and its best validations."""
    headings = ("run", "layers", "width", "parameters", "updates", "hours", "best valid nll")
    rows: list[list[TableCell]] = []
    signed: dict[str, list[str]] = {}
    for run in histories:
        model = run.recipe.model
        rows.append(
            [
                TableCell(run.name),
                TableCell(model.depths, model.encoder.depth + model.decoder.depth),
                TableCell(model.widths, model.width_of("encoder")),
                number(run.parameters, "{:,.0f}".format),
                number(run.last("update"), "{:,.0f}".format),
                number(run.last("hours"), "{:.2f}".format),
                number(min(run.values("valid_nll"), default=None), "{:.3f}".format),
                number(max(run.values(BLEU), default=None), "{:.2f}".format),
            ]
        )
        for signature in {point.signature: 1 for point in run.records if point.figure == BLEU}:
            signed.setdefault(signature, []).append(run.name)
    notes = []
    for signature, names in signed.items():
        of_runs = f" ({', '.join(names)})" if len(signed) > 1 else ""
        notes.append(f"BLEU{of_runs}: {signature}")
    return PageTable((*headings, "best valid BLEU"), rows, notes)


def scores(histories: Sequence[RunHistory]) -> PageTable:
    """A row for each set and metric, a column for each run, the best of several runs marked."""
    table: dict[tuple[str, str], dict[str, Score]] = {}
    for run in histories:
        for name, listed in (run.scores.scores if run.scores else {}).items():
            for score in listed:
                table.setdefault((name, score.metric), {})[run.name] = score
    rows = [
        [
            TableCell(split),
            TableCell(heading_of(metric)),
            *_row(metric, [by_run.get(run.name) for run in histories]),
        ]
        for (split, metric), by_run in table.items()
    ]
    flat = {
        (f"{run}, {split}", metric): score
        for (split, metric), by_run in table.items()
        for run, score in by_run.items()
    }
    notes = [f"{name}: {signature}" for name, signature in signed_by(flat)]
    return PageTable(("set", "metric", *(run.name for run in histories)), rows, notes)


def _row(metric: str, listed: Sequence[Score | None]) -> Iterator[TableCell]:
    """A score for each run; the best is marked if all have one signature."""
    known = [score for score in listed if score is not None]
    best = None
    if len(known) > 1 and len({score.signature for score in known}) == 1 and metric in METRICS:
        choose = max if METRICS[metric].higher_is_better else min
        best = f"{choose(score.value for score in known):.2f}"
    for score in listed:
        cell = number(None if score is None else score.value, "{:.2f}".format)
        yield cell._replace(is_best=cell.text == best)


def cost(histories: Iterable[RunHistory]) -> PageTable:
    """The hardware of each run, and how much time and memory its training took."""
    headings = ["run", "device", "time", "target tokens", "tokens per second"]
    headings += ["tokens per update", "peak memory", "energy"]
    rows = []
    for run in histories:
        hours, tokens = run.last("hours"), run.last("tokens")
        sizes = run.values("tokens_per_update")
        per_second = tokens / (hours * 3600) if tokens and hours else None
        row = [
            TableCell(run.name),
            TableCell("; then ".join(run.devices) or "-"),
            number(hours, lambda hours: duration(hours * 3600)),
            number(tokens, short),
            number(per_second, "{:,.0f}".format),
            number(fmean(sizes) if sizes else None, "{:,.0f}".format),
            number(max(run.values("memory"), default=None), size),
            number(run.joules, kwh),
        ]
        rows.append(row)
    return PageTable(headings, rows)


def recipes(histories: Sequence[RunHistory]) -> Iterator[dict[str, Any]]:
    """The recipe of each run: its differences from others, then all of it as YAML.

    It is compared with the first run's, and with the defaults.
    """
    for run in histories:
        others = [("the defaults", Recipe())]
        if run is not histories[0]:
            others.insert(0, (f"the run {histories[0].name}", histories[0].recipe))
        yield {
            "run": run.name,
            "description": run.recipe.description,
            "differences": [
                (name, differences(_values(base), _values(run.recipe))) for name, base in others
            ],
            "lines": display(run.recipe).splitlines(),
        }


def _values(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json", exclude={"description", "reference"})
