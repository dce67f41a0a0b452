"""`nmtdeep doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import TOLD, Verbose, installed
from nmtdeep.errors import UserError, printable
from nmtdeep.files import check_place


def doctor(
    data: Annotated[Path | None, typer.Option(help="Data directory of nmtdeep preprocess.")] = None,
    train: Annotated[
        Path | None, typer.Option(help="Training text: PREFIX of PREFIX.en and PREFIX.de.")
    ] = None,
    valid: Annotated[Path | None, typer.Option(help="Validation text: PREFIX.")] = None,
    test: Annotated[list[Path] | None, typer.Option(help="Test text: PREFIX.")] = None,
    source_lang: Annotated[
        str | None, typer.Option("-s", "--source-lang", help="Source language code of the text.")
    ] = None,
    target_lang: Annotated[
        str | None, typer.Option("-t", "--target-lang", help="Target language code of the text.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the run will be.")] = Path("run"),
    verbose: Verbose = False,
) -> None:
    """Check that this machine and the text are ready for training: speed, disk, wrong pairs.

    The exit code is 1 if something is wrong, which the last lines then say.
    """
    from rich.console import Console

    from nmtdeep.doctor.examination import Examination
    from nmtdeep.tables import describe

    check_place(out, "--out")
    prefixes = _prefixes(train, valid, test or [])
    if prefixes and not (source_lang and target_lang):
        raise UserError("plain text needs its languages: add -s and -t, such as -s en -t de")
    found = Examination()
    found.machine({name: installed(name) for name in TOLD})
    planned = found.data(data) if data else None
    if prefixes:
        found.files(prefixes, (str(source_lang), str(target_lang)))
    found.disk(out, planned)
    typer.echo(describe([(name, printable(value)) for name, value in found.rows]))
    for table in found.tables:
        Console().print(table)
    for line in found.wrong:
        typer.echo(f"WRONG  {printable(line)}")
    if found.wrong:
        raise typer.Exit(1)
    typer.echo("nothing wrong found")


def _prefixes(train: Path | None, valid: Path | None, tests: list[Path]) -> dict[str, Path]:
    """Splits by name, the training text first, for others are held against it."""
    named = [("train", train), ("valid", valid), *((one.name, one) for one in tests)]
    given = [(name, path) for name, path in named if path is not None]
    names = [name for name, _ in given]
    if len(set(names)) < len(names):
        raise UserError(
            "two splits have one name: rename the --test files; their last path component is it"
        )
    return dict(given)
