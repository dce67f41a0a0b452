"""`nmtdeep doctor`."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Option

from nmtdeep.cli.command import versions
from nmtdeep.cli.options import SourceLanguage, TargetLanguage
from nmtdeep.errors import UserError, printable
from nmtdeep.files import check_place


def doctor(
    data: Path | None = Option(None, help="Directory that `nmtdeep preprocess` wrote."),
    train: Path | None = Option(None, help="Training text: PREFIX of PREFIX.en and PREFIX.de."),
    valid: Path | None = Option(None, help="Validation text: PREFIX."),
    test: list[Path] | None = Option(None, help="Test text: PREFIX."),
    source_lang: SourceLanguage = None,
    target_lang: TargetLanguage = None,
    out: Path = Option(Path("run"), help="Directory of the planned run."),
) -> None:
    """Check that this machine and the text are ready for training: speed, disk, suspicious pairs.

    The last lines name the problems; with any, the exit code is 1.
    """
    from rich.console import Console

    from nmtdeep.doctor.examination import Examination
    from nmtdeep.tables import describe

    check_place(out, "--out")
    named = [("train", train), ("valid", valid), *((path.name, path) for path in test or ())]
    given = [(name, path) for name, path in named if path is not None]
    if len(dict(given)) < len(given):
        hint = "rename the --test files; the last part of a path names the split"
        raise UserError("two splits have the same name", hint=hint)
    if given and not (source_lang and target_lang):
        raise UserError("plain text needs its languages", hint="add -s and -t, such as -s en -t de")
    examination = Examination()
    examination.machine(versions())
    planned = examination.data(data) if data else None
    if given:
        examination.files(dict(given), (str(source_lang), str(target_lang)))
    examination.disk(out, planned)
    typer.echo(describe([(name, printable(value)) for name, value in examination.rows]))
    for table in examination.tables:
        Console().print(table)
    for problem in examination.problems:
        typer.echo(f"PROBLEM  {problem}")
    if examination.problems:
        raise typer.Exit(1)
    typer.echo("no problems found")
