"""From run directories to a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from nmtdeep.analysis.measurement import one_line, versions
from nmtdeep.analysis.records import names
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.devices import resolve_device
from nmtdeep.files import replace_file
from nmtdeep.reporting import held_out, history, page, pictures, tables
from nmtdeep.reporting.parts import Page


def report(
    runs: Sequence[Path],
    out: Path,
    *,
    data: Path | None,
    split: str | None,
    samples: int,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Write the page.

    What a run lacks is left out, and the page says so.

    Args:
        data: with what is translated and measured; None: only what the runs hold is shown.
        split: the set that is translated; None: the first test, or `valid` where there is none.
        samples: lines of it that are shown.
        say: told what takes a while.

    Raises:
        UserError: if one is no run, or translates between other languages than `data`.
    """
    histories = [history.read(name, path) for name, path in names(runs).items()]
    place = resolve_device(device)
    album = pictures.Album(say, left_out=[lack for run in histories for lack in run.lacks])
    corpora = found = None
    if data is None:
        album.left_out.append(
            "Translations, comparison, scores by length, similarity of layers, gradients: they "
            "need text: give --data with the data directory of the runs"
        )
    else:
        corpora = DataDirectory.open(data)
        held_out.check_languages(histories, corpora)
        chosen = held_out.chosen_split(corpora, split)
        found = held_out.translate(histories, corpora, chosen, device=device, say=say)
    pictures.of_training(album, histories)
    pictures.of_models(album, histories, corpora, place)
    if found and found.systems:
        pictures.of_lengths(album, found)
    made = _page(histories, found if found and found.systems else None, samples, say)
    made.figures, made.left_out = album.figures, album.left_out
    with replace_file(out) as beside:
        beside.write_text(page.html(made), encoding="utf-8")


def _page(
    histories: Sequence[history.History],
    found: held_out.HeldOut | None,
    samples: int,
    say: Callable[[str], None],
) -> Page:
    """Everything but the pictures."""
    split, measured = (found.split, found.scores()) if found else ("", {})
    made = Page(
        runs=[run.name for run in histories],
        made=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {one_line(versions())}",
        overview=tables.overview(histories),
        scores=tables.scores(histories, split, measured),
        every_score=tables.every_score(histories, split, measured),
        cost=tables.cost(histories),
        settings=tables.settings(histories),
    )
    if found:
        made.split, made.translated = found.split, found.made
        made.samples = found.samples(samples)
        if len(found.systems) > 1:
            say("paired bootstrap")
            made.comparison = tables.comparison(found.comparisons())
    return made
