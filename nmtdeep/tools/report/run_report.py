"""From run directories to a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from nmtdeep import checkpoint
from nmtdeep.analysis import combination, records, schedule
from nmtdeep.analysis.measurement import Measurement, one_line, versions
from nmtdeep.analysis.pictures import render
from nmtdeep.errors import UserError
from nmtdeep.files import replace_file
from nmtdeep.tools.report import history, page, tables
from nmtdeep.tools.report.history import RunHistory

OVER: tuple[records.Over, ...] = "updates", "hours"
CURVES = (*records.USUAL, "gradient_norm", "lr")


def report(runs: Sequence[Path], out: Path) -> None:
    """Write the page, which lists everything that could not be shown.

    Raises:
        UserError: if a path is not a run.
    """
    histories = [history.read(name, path) for name, path in records.names(runs).items()]
    omissions = [omission for run in histories for omission in run.omissions]
    content = {
        "runs": [run.name for run in histories],
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {one_line(versions())}",
        "overview": tables.overview(histories),
        "scores": tables.scores(histories),
        "pictures": list(_pictures(histories, omissions)),
        "cost": tables.cost(histories),
        "recipes": tables.recipes(histories),
        "omissions": omissions,
    }
    with replace_file(out) as partial_file:
        partial_file.write_text(page.html(content), encoding="utf-8")


def _pictures(histories: Sequence[RunHistory], omissions: list[str]) -> Iterator[page.Picture]:
    """Those of `plot` and `analyze`; an omission for each that cannot be drawn."""
    paths = {run.name: run.path for run in histories}
    recorded = {run.name: run.path for run in histories if run.records}
    measures: dict[str, Callable[[], Measurement]] = {}
    for over in OVER if recorded else ():
        measures[f"Training, by {over}"] = partial(records.measure, recorded, CURVES, over)
    recipes = {run.name: run.recipe for run in histories}
    measures["Learning rate, as planned"] = partial(schedule.measure, recipes, runs=paths)
    for run in histories:
        if run.parameters is not None:
            loaded = checkpoint.load_model(run.path)
            title = f"What each layer reads, {run.name}"
            measures[title] = partial(combination.measure, run.name, loaded)
    for title, measure in measures.items():
        try:
            measurement = measure()
        except UserError as error:
            omissions.append(f"{title}: {error}")
            continue
        of_records = title.startswith("Training, by ")
        # The signature of the records names paths of this machine.
        signature = "from train.jsonl" if of_records else measurement.signature
        svg = render(measurement.draw, "svg")
        yield page.Picture(title, svg, signature, folded=title == "Training, by hours")
