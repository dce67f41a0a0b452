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
    options: held_out.SetOptions | None,
    *,
    device: str,
    say: Callable[[str], None],
) -> None:
    """Write the page, which lists everything that could not be shown.

    Args:
        options: the set to translate; None: show the runs' files only.
        say: is called with a line before each long step.

    Raises:
        UserError: if a path is not a run, the languages of the data are not those of a run, or the
            COMET model cannot be read.
    """
    histories = [history.read(name, path) for name, path in names(runs).items()]
    omissions = [omission for run in histories for omission in run.omissions]
    album = pictures.Album(say, omissions=omissions)
    corpora, translations, samples = None, held_out.HeldOut(), 0
    if options is None:
        album.omissions.append(
            "Translations, comparison, scores by length, similarity of layers, gradients: they "
            "need text: add --data with the data directory of the runs"
        )
    else:
        corpora, samples = DataDirectory.open(options.data), options.samples
        held_out.check_languages(histories, corpora)
        chosen = held_out.chosen_split(corpora, options.split)
        translations = held_out.translate(
            histories, corpora, chosen, device=device, comet=options.comet, say=say
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
