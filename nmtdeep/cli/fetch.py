"""`nmtdeep fetch`: public corpora, ready for `nmtdeep preprocess`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.errors import UserError
from nmtdeep.files import check_place

if TYPE_CHECKING:
    from nmtdeep.fetching.corpus import Fetch, OutputCounts


class Corpus(StrEnum):
    """The corpora of the recipes."""

    WMT14_EN_DE = "wmt14-en-de"
    WMT16_EN_DE_GOOGLE = "wmt16-en-de-google"
    WMT14_EN_FR = "wmt14-en-fr"
    WMT15_CS_EN = "wmt15-cs-en"
    WMT18_EN_FI = "wmt18-en-fi"
    WMT18_ZH_EN = "wmt18-zh-en"
    IWSLT14_DE_EN = "iwslt14-de-en"
    MULTI30K_EN_DE = "multi30k-en-de"


def fetch(
    corpus: Annotated[Corpus, typer.Argument(metavar="CORPUS", help="Corpus to download.")],
    out: Annotated[Path, typer.Option("-o", "--output", "--out", help="Folder that gets it.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Folder with archives that were downloaded by hand, named as --dry-run says.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show addresses, names and licenses; fetch nothing.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress, no tables.")] = False,
    verbose: Verbose = False,
) -> None:
    """Download a public corpus and prepare it as the papers did.

    After an interruption, run it again: complete downloads are kept. At the end it prints the
    command that preprocesses the corpus.
    """
    from nmtdeep.fetching.catalog import load_catalog
    from nmtdeep.fetching.corpus import Fetch
    from nmtdeep.preprocessing.progress import Progress

    if folder is not None and not folder.is_dir():
        raise UserError(
            "not a folder", where=f"--from {folder}", hint="pass a folder with downloaded archives"
        )
    check_place(out, "--output")
    catalog = load_catalog()
    job = Fetch(
        corpus.value,
        catalog.datasets[corpus.value],
        catalog.sources,
        out,
        folder,
        progress=Progress("none" if quiet else "auto"),
        say=(lambda _: None) if quiet else lambda line: typer.echo(line, err=True),
    )
    if dry_run or not quiet:
        _show_plan(job)
    if dry_run:
        typer.echo("nothing was fetched")
        return
    made = job.run()
    if not quiet:
        _show_made(made)
    typer.echo("next:")
    for line in job.commands():
        typer.echo(f"  {line}")


def _show_plan(job: Fetch) -> None:
    typer.echo(f"{job.name}: {job.dataset.description}")
    for name in job.dataset.sources:
        source = job.sources[name]
        typer.echo(f"  {source.file}: {source.license}")
        for url in source.urls:
            typer.echo(f"    {url}")


def _show_made(made: list[OutputCounts]) -> None:
    for one in made:
        typer.echo(f"{one.name}: {one.pairs:,} pairs")
        if one.expected not in (None, one.pairs):
            typer.echo(
                f"  published: {one.expected:,}: the data or a tool has another version, or a file "
                "is damaged"
            )
        for reason, count in sorted(one.dropped.items()):
            typer.echo(f"  {count:,} dropped: {reason}")
