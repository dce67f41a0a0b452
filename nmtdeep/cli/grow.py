"""`nmtdeep grow`."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from nmtdeep.cli.choices import Verbose
from nmtdeep.cli.outputs import as_typed
from nmtdeep.errors import UserError
from nmtdeep.units import counted


class Strategy(StrEnum):
    """Where new layers come from."""

    COPY_TOP_GROUP = "copy-top-group"
    COPY_TOP_LAYER = "copy-top-layer"
    INTERPOLATE = "interpolate"
    STACK_ALL = "stack-all"
    RANDOM = "random"


class Side(StrEnum):
    """Which stack grows."""

    ENCODER = "encoder"
    DECODER = "decoder"
    BOTH = "both"


def grow(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory or checkpoint.")],
    layers: Annotated[int, typer.Option(min=1, help="Layers that the stack has afterwards.")],
    out: Annotated[Path, typer.Option("--out", help="Run directory of the deeper model.")],
    stack: Annotated[Side, typer.Option(help="Which stack grows.")] = Side.ENCODER,
    strategy: Annotated[
        Strategy, typer.Option(help="Where new layers come from.")
    ] = Strategy.COPY_TOP_GROUP,
    restart_lr: Annotated[
        bool, typer.Option(help="The learning rate goes back to its peak, or goes on.")
    ] = True,
    freeze_copied: Annotated[
        bool, typer.Option("--freeze-copied", help="Train the new layers of the stack only.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Make a trained model deeper; the new run can be trained on and translates at once.

    Train it on with its own recipe: nmtdeep train --data DIR --out OUT
    """
    from nmtdeep.growing import grow as grow_run

    if source.resolve() == out.resolve():
        raise UserError(f"{out} is the run that grows: choose another --out")
    grown = grow_run(
        source,
        out=out,
        encoder=layers if stack in (Side.ENCODER, Side.BOTH) else None,
        decoder=layers if stack in (Side.DECODER, Side.BOTH) else None,
        strategy=strategy.value.replace("-", "_"),  # type: ignore[arg-type]
        restart_lr=restart_lr,
        freeze_copied=freeze_copied,
    )
    typer.echo(f"{grown.checkpoint}: grown from {as_typed(source, grown.source)}")
    for side, sources in grown.layers.items():
        typer.echo(f"{side}: {_shown(sources)}")
    command = f"nmtdeep train --data DIR --out {out}"
    if grown.more:
        typer.echo(
            "the training that it comes from had reached its end: raise the limit to train on, for "
            f"example {grown.more}"
        )
    typer.echo(f"train on with: {command} {grown.more}".rstrip())


def _shown(sources: Sequence[int | None]) -> str:
    """Layers counted from 1, such as `12 layers from 1 2 3 4 5 6 1 2 3 4 5 6`."""
    old = {source for source in sources if source is not None}
    if len(old) == len(sources):
        return f"{counted(len(sources), 'layer')}, as before"
    names = ["new" if source is None else str(source + 1) for source in sources]
    return f"{len(sources)} layers from {' '.join(names)}"
