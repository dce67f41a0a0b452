"""`nmtdeep average-checkpoints`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.errors import UserError
from nmtdeep.files import check_place


def average_checkpoints(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|CHECKPOINT",
            help="A run directory with --last or --best, or the checkpoints themselves.",
        ),
    ],
    last: Annotated[int | None, typer.Option(min=1, help="Average the N newest.")] = None,
    best: Annotated[int | None, typer.Option(min=1, help="Average the N best validated.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            "--out",
            help="Checkpoint to write.",
            show_default="RUN/checkpoint_average",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing average.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Average the weights of several checkpoints of one run into a new checkpoint."""
    from nmtdeep import averaging, checkpoint

    if last is not None and best is not None:
        raise UserError("--last and --best exclude each other: give one")
    run = paths[0]
    if last is None and best is None:
        inputs = paths
        if output is None:
            raise UserError("checkpoints named one by one need --output; or give RUN --last N")
    else:
        if len(paths) > 1:
            raise UserError("--last and --best take one run directory")
        inputs = averaging.newest(run, last) if last is not None else averaging.best(run, best or 1)
    out = output or run / checkpoint.AVERAGE
    check_place(out, "--output")
    if out.exists() and not overwrite:
        raise UserError(f"{out} exists: add --overwrite, or choose another --output")
    averaging.check_out(out, inputs)
    averaging.average(inputs, out)
    typer.echo(f"{out}: mean of {', '.join(path.name for path in inputs)}")
