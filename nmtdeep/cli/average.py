"""`nmtdeep average-checkpoints`."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from nmtdeep.cli.options import Overwrite
from nmtdeep.errors import UserError
from nmtdeep.files import check_place


def average_checkpoints(
    paths: list[Path] = Argument(
        ...,
        metavar="RUN|CHECKPOINT",
        help="A run directory with --last or --best, or the checkpoints themselves.",
    ),
    last: int | None = Option(None, min=1, help="Number of newest checkpoints to average."),
    best: int | None = Option(None, min=1, help="Number of best validated checkpoints to average."),
    output: Path | None = Option(
        None,
        "-o",
        "--output",
        "--out",
        help="Checkpoint to write.",
        show_default="RUN/checkpoint_average",
    ),
    overwrite: Overwrite = False,
) -> None:
    """Average the weights of several checkpoints of one run into a new checkpoint."""
    from nmtdeep import averaging, checkpoint

    if last and best:
        raise UserError("exclude each other", where="--last and --best", hint="give one")
    run, inputs = paths[0], paths
    if last or best:
        if len(paths) > 1:
            raise UserError("take one run directory", where="--last and --best")
        inputs = averaging.newest(run, last) if last else averaging.best(run, best or 1)
    elif output is None:
        hint = "give --output; or a run with --last N"
        raise UserError("checkpoints that are named one by one need an --output", hint=hint)
    out = output or run / checkpoint.AVERAGE
    check_place(out, "--output")
    if out.exists() and not overwrite:
        raise UserError("exists", where=out, hint="add --overwrite, or choose another --output")
    averaging.check_out(out, inputs)
    averaging.average(inputs, out)
    typer.echo(f"{out}: mean of {', '.join(path.name for path in inputs)}")
