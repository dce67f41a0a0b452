"""`nmtdeep plot`: the curves of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.outputs import Outputs, WrittenTo
from nmtdeep.errors import UserError

CURVES = Path("curves.svg")


def plot(
    runs: Annotated[list[Path], Argument(metavar="RUN")],
    *,
    over: Literal["updates", "tokens", "hours"] = "updates",
    figure: Annotated[list[str] | None, Option(metavar="NAME")] = None,
    outputs: WrittenTo,
) -> None:
    """Draw the training and validation curves of runs, and print their latest values.

    Without --plot, --csv or --json the picture is curves.svg.

    Args:
        runs: Run directories.
        over: Unit of the x axis.
        figure: Figure of the log to draw, such as lr or valid_chrf. Default: nll, valid_nll and
            valid_bleu.
    """
    from nmtdeep.analysis import records

    usual = outputs == Outputs()
    if usual:
        outputs = Outputs(plot=CURVES, overwrite=outputs.overwrite)
    figures = list(dict.fromkeys(figure or records.USUAL))
    if unknown := [name for name in figures if name not in records.FIGURES]:
        hint = f"choose from {', '.join(records.FIGURES)}"
        raise UserError(f"no such figure: {', '.join(unknown)}", where="--figure", hint=hint)
    outputs.write(records.measure(records.names(runs), figures, over))
    if usual:
        typer.echo(f"picture: {CURVES}")
