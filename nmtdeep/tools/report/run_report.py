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
from nmtdeep.tools.report import held_out, history, page, pictures, tables


def report(
    runs: Sequence[Path],
    out: Path,
    *,
    data: Path | None,
    split: str | None,
    samples: int,
    comet: str | None,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Write the page, which lists everything that could not be shown.

    Args:
        data: data directory with text to translate and measure; None: show the runs' files only.
        split: the set to translate; None: the first test set, or `valid` without one.
        samples: number of its lines to show.
        comet: COMET model that scores the translations too; None: no COMET.
        say: is called with a line before each long step.

    Raises:
        UserError: if a path is not a run, the languages of `data` are not those of a run, or the
            COMET model cannot be read.
    """
    histories = [history.read(name, path) for name, path in names(runs).items()]
    omissions = [omission for run in histories for omission in run.omissions]
    album = pictures.Album(say, omissions=omissions)
    corpora, translations = None, held_out.HeldOut()
    if data is None:
        album.omissions.append(
            "Translations, comparison, scores by length, similarity of layers, gradients: they "
            "need text: add --data with the data directory of the runs"
        )
    else:
        corpora = DataDirectory.open(data)
        held_out.check_languages(histories, corpora)
        chosen = held_out.chosen_split(corpora, split)
        translations = held_out.translate(
            histories, corpora, chosen, device=device, comet=comet, say=say
        )
    pictures.of_training(album, histories)
    pictures.of_models(album, histories, corpora, resolve_device(device))
    if translations.systems:
        pictures.of_lengths(album, translations)
    text = page.html(
        {
            "runs": [run.name for run in histories],
            "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {one_line(versions())}",
            "overview": tables.overview(histories),
            "scores": tables.scores(histories, translations.split, translations.scores()),
            "comparison": tables.comparison(translations.comparisons()),
            "split": translations.split,
            "samples": translations.samples(samples),
            "searches": translations.searches,
            "pictures": album.pictures,
            "cost": tables.cost(histories),
            "recipes": tables.recipes(histories),
            "omissions": album.omissions,
        }
    )
    with replace_file(out) as partial:
        partial.write_text(text, encoding="utf-8")
