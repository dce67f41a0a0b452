"""`nmtdeep average-checkpoints`: one checkpoint from several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from nmtdeep.cli import options
from nmtdeep.errors import UserError


def average_checkpoints(
    paths: Annotated[list[Path], Argument(metavar="RUN|CHECKPOINT")],
    *,
    last: options.OptionalWhole = None,
    best: options.OptionalWhole = None,
    output: options.OptionalOut = None,
    overwrite: options.Overwrite = False,
) -> None:
    """Average the weights of several checkpoints of one run into a new checkpoint.

    Args:
        paths: A run directory with --last or --best, or the checkpoints themselves.
        last: Number of newest checkpoints to average.
        best: Number of best validated checkpoints to average.
        output: Checkpoint to write. Default: RUN/checkpoint_average.
    """
    from nmtdeep import averaging, checkpoint

    run, inputs = paths[0], paths
    if (last or best) and (len(paths) > 1 or (last and best)):
        what = "take one run directory, and exclude each other"
        raise UserError(what, where="--last and --best")
    if last or best:
        inputs = averaging.choose(run, last or best or 1, best=last is None)
    elif output is None:
        hint = "pass --output; or a run with --last N"
        raise UserError("checkpoints that are named one by one need an --output", hint=hint)
    out = output or run / checkpoint.AVERAGE
    checkpoint.check_free(out, overwrite=overwrite)
    averaging.average(inputs, out)
    typer.echo(f"{out}: mean of {', '.join(path.name for path in inputs)}")
    if out == run / checkpoint.AVERAGE:
        typer.echo(
            f"{run} translates with it from now on; compare it by score --model with the best"
        )
