"""`nmtdeep fetch`: a public corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from nmtdeep.cli import options
from nmtdeep.errors import UserError
from nmtdeep.files import check_place
from nmtdeep.tools.fetch import Corpus


def fetch(
    corpus: Corpus,
    *,
    out: options.Out,
    folder: Annotated[Path | None, Option("--from")] = None,
    dry_run: options.DryRun = False,
    quiet: options.Quiet = False,
) -> None:
    """Download a public corpus and prepare it as the papers did.

    After an interruption, run it again: complete downloads are kept. At the end it prints the
    command that preprocesses the corpus.

    Args:
        corpus: Corpus to download.
        out: Folder to write to.
        folder: Folder with archives downloaded by hand, named as --dry-run shows.
    """
    from nmtdeep.preprocessing.progress import ProgressBar
    from nmtdeep.tools.fetch.catalog import load_catalog
    from nmtdeep.tools.fetch.corpus import Fetch

    if folder is not None and not folder.is_dir():
        raise UserError("not a folder", where="--from", hint="pass a folder of archives")
    check_place(out, "--output")
    catalog = load_catalog()
    job = Fetch(
        corpus,
        catalog.datasets[corpus],
        catalog.sources,
        out,
        folder,
        progress=ProgressBar("none" if quiet else "auto"),
        say=(lambda _: None) if quiet else lambda line: typer.echo(line, err=True),
    )
    if dry_run or not quiet:
        typer.echo("\n".join(job.plan()))
    if dry_run:
        typer.echo("nothing was fetched")
        return
    outputs = job.run()
    if not quiet:
        typer.echo("\n".join(line for output in outputs for line in output.lines()))
    typer.echo("\n  ".join(["next:", *job.commands()]))
