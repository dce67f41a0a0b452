"""Histories as tables and lists: overview, scores, hardware and cost, recipes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nmtdeep.config import Recipe
from nmtdeep.config.compare import differences
from nmtdeep.config.load import dump, list_recipes, load_recipe
from nmtdeep.reporting.history import History
from nmtdeep.reporting.parts import Cell, Settings, Table
from nmtdeep.scoring import Score
from nmtdeep.scoring.metrics import METRICS
from nmtdeep.scoring.significance import Comparison
from nmtdeep.training.display import duration, short

NONE = Cell("-")


def number(value: float | None, shown: str) -> Cell:
    """A cell that shows a format of `value`, or a dash."""
    return NONE if value is None else Cell(format(value, shown), float(value))


def overview(
    histories: Iterable[History], split: str, measured: Mapping[str, Sequence[Score]]
) -> Table:
    """A line for each run: what it is, how long it was trained, how good it is.

    Args:
        measured: scores of `split` that were measured for this report, by run.
    """
    headings = ("run", "layers", "width", "parameters", "updates", "hours", "valid nll", "BLEU")
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
                _bleu(run, split, measured.get(run.name, ())),
            ]
        )
    return Table(headings, rows)


def scores(
    histories: Iterable[History], split: str, measured: Mapping[str, Sequence[Score]]
) -> Table:
    """Every score with its signature: those of the training's end, and those of this report."""
    headings = ("run", "set", "metric", "score", "measured", "signature")
    rows = []
    for run in histories:
        found = [
            (split, one.name, one.value, one.signature, "for this report")
            for one in measured.get(run.name, ())
        ]
        if run.scores:
            when = f"after training, {run.scores.checkpoint}"
            found += [
                (name, one.metric, one.value, one.signature, when)
                for name, some in run.scores.scores.items()
                for one in some
            ]
        for name, metric, value, signature, when in found:
            label = METRICS[metric].label if metric in METRICS else metric
            rows.append(
                [
                    Cell(run.name),
                    Cell(name),
                    Cell(label),
                    number(value, ".2f"),
                    Cell(when),
                    Cell(signature),
                ]
            )
    return Table(headings, rows)


def comparison(found: Iterable[Comparison]) -> Table:
    """Each run against the first one; which of them is better, if p is small."""
    headings = ("run", "metric", "score", "mean ± 95 %", "difference", "p", "signature")
    rows = []
    for one in found:
        metric = METRICS[one.metric]
        baseline = one.p_value is None
        mean = "-" if one.mean is None else f"{one.mean:.2f} ± {one.interval:.2f}"
        rows.append(
            [
                Cell(one.system),
                Cell(f"{metric.label} {'↑' if metric.higher_is_better else '↓'}"),
                number(one.value, ".2f"),
                Cell(mean, one.mean),
                Cell("baseline", 0.0) if baseline else number(one.difference, "+.2f"),
                NONE if baseline else number(one.p_value, ".4f"),
                Cell(one.signature),
            ]
        )
    return Table(headings, rows)


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
        hours, tokens, updates = (_last(run, one) for one in ("hours", "tokens", "update"))
        memory = max((one.value for one in run.points if one.figure == "memory"), default=None)
        per_second = tokens / (hours * 3600) if tokens and hours else None
        rows.append(
            [
                Cell(run.name),
                Cell("; then ".join(run.devices) or "-"),
                NONE if hours is None else Cell(duration(hours * 3600), hours),
                NONE if tokens is None else Cell(short(tokens), tokens),
                number(per_second, ",.0f"),
                number(tokens / updates if tokens and updates else None, ",.0f"),
                NONE if memory is None else Cell(f"{short(memory)}B", memory),
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


def _bleu(run: History, split: str, measured: Iterable[Score]) -> Cell:
    """Of the set that was translated for this report; else of the last set that was scored."""
    stored = run.scores.scores if run.scores else {}
    found = [
        (name, one.value) for name, some in stored.items() for one in some if one.metric == "bleu"
    ]
    found += [(split, one.value) for one in measured if one.name == "bleu"]
    return Cell(f"{found[-1][1]:.2f} ({found[-1][0]})", found[-1][1]) if found else NONE
