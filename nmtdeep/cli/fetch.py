"""`nmtdeep fetch`: public corpora, ready for `nmtdeep preprocess`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.options import DryRun, Quiet
from nmtdeep.errors import UserError
from nmtdeep.files import check_place

if TYPE_CHECKING:
    from nmtdeep.fetching.corpus import Fetch, OutputCounts

Corpus = Literal[
    "wmt14-en-de",
    "wmt16-en-de-google",
    "wmt14-en-fr",
    "wmt15-cs-en",
    "wmt18-en-fi",
    "wmt18-zh-en",
    "iwslt14-de-en",
    "multi30k-en-de",
]


def fetch(
    corpus: Corpus = Argument(..., metavar="CORPUS", help="Corpus to download."),
    out: Path = Option(..., "-o", "--output", "--out", help="Folder to write to."),
    folder: Path | None = Option(
        None, "--from", help="Folder with archives downloaded by hand, named as --dry-run shows."
    ),
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Download a public corpus and prepare it as the papers did.

    After an interruption, run it again: complete downloads are kept. At the end it prints the
    command that preprocesses the corpus.
    """
    from nmtdeep.fetching.catalog import load_catalog
    from nmtdeep.fetching.corpus import Fetch
    from nmtdeep.preprocessing.progress import Progress

    if folder is not None and not folder.is_dir():
        hint = "give a folder with downloaded archives"
        raise UserError("not a folder", where=f"--from {folder}", hint=hint)
    check_place(out, "--output")
    catalog = load_catalog()
    job = Fetch(
        corpus,
        catalog.datasets[corpus],
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
    outputs = job.run()
    if not quiet:
        _show_counts(outputs)
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


def _show_counts(outputs: list[OutputCounts]) -> None:
    for output in outputs:
        typer.echo(f"{output.name}: {output.pairs:,} pairs")
        if output.expected not in (None, output.pairs):
            typer.echo(
                f"  published: {output.expected:,}: the data or a tool has another version, or a "
                "file is damaged"
            )
        for reason, count in sorted(output.dropped.items()):
            typer.echo(f"  {count:,} dropped: {reason}")
