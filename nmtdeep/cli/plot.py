"""`nmtdeep plot`: the curves of trainings."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import typer
from typer import Argument, Option

from nmtdeep.cli.options import collected
from nmtdeep.cli.outputs import OPTIONS, Analysis, Outputs
from nmtdeep.errors import UserError

CURVES = Path("curves.svg")


@collected("outputs", OPTIONS, lambda given: Outputs(**given))
def plot(
    runs: list[Path] = Argument(..., metavar="RUN", help="Run directories."),
    over: Literal["updates", "tokens", "hours"] = Option("updates", help="Unit of the x axis."),
    figure: list[str] | None = Option(
        None,
        metavar="NAME",
        help="Figure of the log to draw, such as ppl, lr, gradient_norm or valid_chrf.",
        show_default="nll, valid_nll and valid_bleu",
    ),
    *,
    outputs: Outputs,
) -> None:
    """Draw the training and validation curves of runs, and print their latest values.

    Without --plot, --csv or --json the picture is curves.svg.
    """
    if outputs == Outputs(None, None, as_json=False):
        outputs = Outputs(None, CURVES, as_json=False)
    outputs.check()
    from nmtdeep.analysis import records

    figures = list(dict.fromkeys(figure or records.USUAL))
    if unknown := [name for name in figures if name not in records.FIGURES]:
        hint = f"choose from {', '.join(records.FIGURES)}"
        raise UserError(f"no such figure: {', '.join(unknown)}", where="--figure", hint=hint)
    draw = partial(records.draw, figures=figures, over=over)
    outputs.write(Analysis(records.measure(records.names(runs)), records.tables, draw))
    if outputs.plot is CURVES:
        typer.echo(f"picture: {CURVES}")
