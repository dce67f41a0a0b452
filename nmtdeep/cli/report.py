"""`nmtdeep report`: a page about runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from nmtdeep.cli import options
from nmtdeep.cli.outputs import refuse_foreign
from nmtdeep.errors import UserError


def report(
    runs: Annotated[list[Path], Argument(metavar="RUN")],
    *,
    output: options.Out = Path("report.html"),
    data: Path | None = None,
    split: str | None = None,
    samples: options.Whole = 10,
    comet_model: Annotated[str | None, options.COMET_MODEL] = None,
    overwrite: bool = False,
    device: options.Place,
) -> None:
    """Write one page about runs that any browser shows: scores, curves, translations, pictures.

    The page loads nothing from the network, so it can be sent and kept as it is.

    Args:
        runs: Run directories; the others are compared with the first.
        output: Page to write.
        data: Data directory: also translate a test set and look into the models.
        split: Set of --data to translate. Default: the first test set, or valid.
        samples: Number of translations to show.
        comet_model: COMET model on this machine that scores the translations too.
        overwrite: Replace a file that nmtdeep did not write, too.
    """
    for name, value in {"--split": split, "--comet-model": comet_model}.items():
        if value and not data:
            raise UserError("needs a data directory", where=f"{name} {value}", hint="add --data")
    if output.is_dir() or not output.parent.is_dir():
        what, where = "not a file in an existing directory", f"--output {output}"
        raise UserError(what, where=where, hint="name one, such as report.html")
    refuse_foreign(output, overwrite=overwrite)
    from nmtdeep.tools.report import run_report
    from nmtdeep.tools.report.held_out import SetOptions
    from nmtdeep.units import size

    run_report.report(
        runs,
        output,
        SetOptions(data, split, samples, comet_model) if data else None,
        device=str(device),
        say=partial(typer.echo, err=True),
    )
    typer.echo(f"{output}: {size(output.stat().st_size)}; open it in a browser")
