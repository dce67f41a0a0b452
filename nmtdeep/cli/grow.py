"""`nmtdeep grow`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import typer
from typer import Option

from nmtdeep.cli.options import Run, as_typed
from nmtdeep.errors import UserError
from nmtdeep.units import counted

Strategy = Literal["copy-top-group", "copy-top-layer", "interpolate", "stack-all", "random"]


def grow(
    source: Run,
    layers: int = Option(..., min=1, help="Number of layers of the deeper stack."),
    out: Path = Option(..., help="Run directory of the deeper model."),
    stack: Literal["encoder", "decoder", "both"] = Option(
        "encoder", help="Stack that becomes deeper."
    ),
    strategy: Strategy = Option(
        "copy-top-group", help="Where the weights of new layers come from."
    ),
    restart_lr: bool = Option(
        True, help="Start the learning rate from its peak again, or continue it."
    ),
    freeze_copied: bool = Option(
        False, "--freeze-copied", help="Train only the new layers of the stack."
    ),
) -> None:
    """Make a trained model deeper; the new run can be trained on and translates at once.

    Train it on with its own recipe: nmtdeep train --data DIR --out OUT
    """
    from nmtdeep.growing import grow as grow_run

    if source.resolve() == out.resolve():
        raise UserError("is the run that grows", where=out, hint="choose another --out")
    grown = grow_run(
        source,
        out=out,
        encoder=layers if stack in ("encoder", "both") else None,
        decoder=layers if stack in ("decoder", "both") else None,
        strategy=strategy.replace("-", "_"),  # type: ignore[arg-type]
        restart_lr=restart_lr,
        freeze_copied=freeze_copied,
    )
    typer.echo(f"{grown.checkpoint}: grown from {as_typed(source, grown.source)}")
    for side, sources in grown.layers.items():
        typer.echo(f"{side}: {_shown(sources)}")
    if grown.more:
        typer.echo(
            "the original training had reached its end: raise the limit to train on, for example "
            f"{grown.more}"
        )
    typer.echo(f"train on with: nmtdeep train --data DIR --out {out} {grown.more}".rstrip())


def _shown(sources: Sequence[int | None]) -> str:
    """Layers counted from 1, such as `12 layers from 1 2 3 4 5 6 1 2 3 4 5 6`."""
    old = {source for source in sources if source is not None}
    if len(old) == len(sources):
        return f"{counted(len(sources), 'layer')}, as before"
    names = ["new" if source is None else str(source + 1) for source in sources]
    return f"{len(sources)} layers from {' '.join(names)}"
