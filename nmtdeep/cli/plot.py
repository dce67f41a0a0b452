"""`nmtdeep plot`: the curves of trainings."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.outputs import Csv, Json, Plot, check_plot, give


class Over(StrEnum):
    """What the x axis counts."""

    UPDATES = "updates"
    TOKENS = "tokens"
    HOURS = "hours"


class Figure(StrEnum):
    """What a training wrote down."""

    LOSS = "loss"
    NLL = "nll"
    PPL = "ppl"
    LR = "lr"
    GRADIENT_NORM = "gradient_norm"
    TOKENS_PER_SECOND = "tokens_per_second"
    PADDING = "padding"
    MEMORY = "memory"
    VALID_LOSS = "valid_loss"
    VALID_NLL = "valid_nll"
    VALID_PPL = "valid_ppl"
    VALID_BLEU = "valid_bleu"
    VALID_CHRF = "valid_chrf"


USUAL = [Figure.NLL, Figure.VALID_NLL, Figure.VALID_BLEU]


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
    over: Annotated[Over, typer.Option(help="What the picture goes over.")] = Over.UPDATES,
    figure: Annotated[
        list[Figure] | None,
        typer.Option(help="What to draw; nll, valid_nll and valid_bleu if not given."),
    ] = None,
    csv: Csv = None,
    picture: Plot = None,
    as_json: Json = False,
) -> None:
    """Draw the training and validation curves of runs, and print where they stand.

    Without --plot, --csv or --json the picture is curves.svg.
    """
    wanted = picture or (None if csv or as_json else Path("curves.svg"))
    check_plot(
        wanted, otherwise="leave --plot out" if csv or as_json else "give --csv or --json instead"
    )
    from nmtdeep.analysis import records

    chosen = list(dict.fromkeys(one.value for one in figure or USUAL))
    draw = partial(records.draw, figures=chosen, over=over.value)
    measurement = records.measure(records.names(runs))
    give(measurement, records.tables, draw, csv=csv, plot=wanted, as_json=as_json)
    if wanted and not picture:
        typer.echo(f"drawn: {wanted}")
