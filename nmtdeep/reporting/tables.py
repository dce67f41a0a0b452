"""Histories as tables and lists: overview, scores, hardware and cost, recipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from nmtdeep.config import Recipe
from nmtdeep.config.load import list_recipes, load_recipe
from nmtdeep.config.render import differences, dump
from nmtdeep.reporting.history import History
from nmtdeep.reporting.parts import Cell, Settings, Table
from nmtdeep.scoring import Score
from nmtdeep.scoring.metrics import METRICS, heading_of, label_of
from nmtdeep.scoring.rendering import signed_by
from nmtdeep.scoring.significance import Comparison
from nmtdeep.units import duration, short, size

NONE = Cell("-")


def number(value: float | None, shown: str) -> Cell:
    """A cell that shows a format of `value`, or a dash."""
    return NONE if value is None else Cell(format(value, shown), float(value))


def overview(histories: Iterable[History]) -> Table:
    """A line for each run: what it is and how long it was trained."""
    headings = ("run", "layers", "width", "parameters", "updates", "hours", "best valid nll")
    rows = []
    for run in histories:
        model = run.recipe.model
        layers = model.encoder.depth + model.decoder.depth
        best = min((one.value for one in run.points if one.figure == "valid_nll"), default=None)
        rows.append(
            [
                Cell(run.name),
                Cell(f"{model.encoder.depth}+{model.decoder.depth}", layers),
                Cell(str(model.width), model.width),
                NONE if run.parameters is None else Cell(f"{run.parameters:,}", run.parameters),
                number(_last(run, "update"), ",.0f"),
                number(_last(run, "hours"), ".2f"),
                number(best, ".3f"),
            ]
        )
    return Table(headings, rows)


def scores(
    histories: Sequence[History], split: str, measured: Mapping[str, Sequence[Score]]
) -> Table:
    """A row for each set and metric, a column for each run, the best of several runs marked.

    What was measured for this report is shown in place of what the end of training stored.

    Args:
        measured: scores of `split` that were measured for this report, by run.
    """
    found: dict[tuple[str, str], dict[str, Score]] = {}
    notes = []
    for run in histories:
        of_run = _stored(run)
        for now in measured.get(run.name, ()):
            before = of_run.get((split, now.metric), now)
            of_run[split, now.metric] = now
            if run.scores and f"{before.value:.2f}" != f"{now.value:.2f}":
                notes.append(
                    f"{run.name}, {split}: {label_of(now.metric)} was {before.value:.2f} after "
                    f"training ({run.scores.checkpoint}); the table has what it translates now"
                )
        for place, score in of_run.items():
            found.setdefault(place, {})[run.name] = score
    rows = [
        [
            Cell(name),
            Cell(heading_of(metric)),
            *_row(metric, [by_run.get(run.name) for run in histories]),
        ]
        for (name, metric), by_run in found.items()
    ]
    flat = {
        (f"{run}, {name}", metric): score
        for (name, metric), by_run in found.items()
        for run, score in by_run.items()
    }
    notes = [f"{name}: {signature}" for name, signature in signed_by(flat)] + notes
    return Table(("set", "metric", *(run.name for run in histories)), rows, notes)


def _stored(run: History) -> dict[tuple[str, str], Score]:
    """What the end of a training stored, by set and metric."""
    listed = run.scores.scores if run.scores else {}
    return {(name, one.metric): one for name, some in listed.items() for one in some}


def _row(metric: str, found: Sequence[Score | None]) -> Iterator[Cell]:
    """A score for each run; the best is marked where all are of one signature."""
    known = [one for one in found if one is not None]
    best = None
    if len(known) > 1 and len({one.signature for one in known}) == 1 and metric in METRICS:
        choose = max if METRICS[metric].higher_is_better else min
        best = f"{choose(one.value for one in known):.2f}"
    for one in found:
        shown = None if one is None else f"{one.value:.2f}"
        yield NONE if one is None else Cell(str(shown), one.value, is_best=shown == best)


def every_score(
    histories: Iterable[History], split: str, measured: Mapping[str, Sequence[Score]]
) -> Table:
    """A row for each score: those of the training's end, and those of this report."""
    headings = ("run", "set", "metric", "score", "measured", "signature")
    rows = []
    for run in histories:
        found = [
            (split, one.metric, one.value, one.signature, "for this report")
            for one in measured.get(run.name, ())
        ]
        if run.scores:
            when = f"after training, {run.scores.checkpoint}"
            found += [
                (name, one.metric, one.value, one.signature, when)
                for (name, _), one in _stored(run).items()
            ]
        rows += [
            [
                Cell(run.name),
                Cell(name),
                Cell(label_of(metric)),
                number(value, ".2f"),
                Cell(when),
                Cell(signature),
            ]
            for name, metric, value, signature, when in found
        ]
    return Table(headings, rows)


def comparison(found: Iterable[Comparison]) -> Table:
    """Each run against the first one; which of them is better, if p is small."""
    headings = ("run", "metric", "mean ± 95 %", "difference", "p")
    rows, notes = [], []
    for one in found:
        baseline = one.p_value is None
        mean = "-" if one.mean is None else f"{one.mean:.2f} ± {one.interval:.2f}"
        rows.append(
            [
                Cell(one.system),
                Cell(heading_of(one.metric)),
                Cell(mean, one.mean),
                Cell("baseline", 0.0) if baseline else number(one.difference, "+.2f"),
                NONE if baseline else number(one.p_value, ".4f"),
            ]
        )
        notes.append(f"{label_of(one.metric)}: {one.signature}")
    return Table(headings, rows, list(dict.fromkeys(notes)))


def cost(histories: Iterable[History]) -> Table:
    """What each run was trained on, and how much of it it took."""
    headings = (
        "run",
        "device",
        "time",
        "target tokens",
        "tokens per second",
        "tokens per update",
        "peak memory",
    )
    rows = []
    for run in histories:
        hours, tokens = _last(run, "hours"), _last(run, "tokens")
        memory = max((one.value for one in run.points if one.figure == "memory"), default=None)
        sizes = [one.value for one in run.points if one.figure == "tokens_per_update"]
        per_second = tokens / (hours * 3600) if tokens and hours else None
        rows.append(
            [
                Cell(run.name),
                Cell("; then ".join(run.devices) or "-"),
                NONE if hours is None else Cell(duration(hours * 3600), hours),
                NONE if tokens is None else Cell(short(tokens), tokens),
                number(per_second, ",.0f"),
                number(fmean(sizes) if sizes else None, ",.0f"),
                NONE if memory is None else Cell(size(memory), memory),
            ]
        )
    return Table(headings, rows)


def settings(histories: Sequence[History]) -> list[Settings]:
    """The recipe of each run: what is particular about it first, then all."""
    shipped = {entry.description: entry.name for entry in list_recipes() if entry.description}
    return [_settings(run, histories[0], shipped.get(run.recipe.description)) for run in histories]


def _settings(run: History, first: History, shipped: str | None) -> Settings:
    """Held against the first run, the shipped recipe of the same description, and the defaults."""
    against: list[tuple[str, Recipe]] = [("the defaults", Recipe())]
    if shipped:
        against.insert(0, (f"the recipe {shipped}", load_recipe(shipped)))
    if run is not first:
        against.insert(0, (f"the run {first.name}", first.recipe))
    return Settings(
        run.name,
        run.recipe.description,
        [(name, differences(_values(one), _values(run.recipe))) for name, one in against],
        dump(run.recipe).splitlines(),
    )


def _values(recipe: Recipe) -> dict[str, Any]:
    """What a recipe says of text, model, training and decoding."""
    return recipe.model_dump(mode="json", exclude={"description", "reference"})


def _last(run: History, what: str) -> float | None:
    """Where the records of a run end; None without records."""
    if not run.points:
        return None
    return float(getattr(max(run.points, key=lambda one: one.update), what))
