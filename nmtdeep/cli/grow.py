"""`nmtdeep grow`: a deeper model from a trained one."""

from __future__ import annotations

from typing import Literal

import typer

from nmtdeep.cli import options
from nmtdeep.config.stages import Growth
from nmtdeep.config.values import validated
from nmtdeep.units import counted


def grow(
    source: options.Run,
    *,
    layers: options.Whole,
    out: options.Out,
    stack: Literal["encoder", "decoder", "both"] = "encoder",
    strategy: str = "copy_top_group",
    restart_lr: bool = True,
    freeze_copied: bool = False,
) -> None:
    """Make a trained model deeper; the new run can be trained on and translates at once.

    Continue training with its own recipe: nmtdeep train --data DIR --out OUT

    Args:
        layers: Number of layers of the deeper stack.
        out: Run directory of the deeper model.
        stack: Stack that becomes deeper.
        strategy: Source of the weights of new layers: copy_top_group, copy_top_layer, interpolate,
            stack_all or random, or a strategy of another package.
        restart_lr: Start the learning rate from its peak again, or continue it.
        freeze_copied: Train only the new layers of the stack.
    """
    from nmtdeep.config.model import SIDES
    from nmtdeep.growing import grow as grow_run

    name = strategy if "." in strategy else strategy.replace("-", "_")
    growth = validated(Growth, {"strategy": name}, spelled="--{}".format)
    grown = grow_run(
        source,
        out=out,
        depths=dict.fromkeys(SIDES if stack == "both" else (stack,), layers),
        strategy=growth.strategy,
        restart_lr=restart_lr,
        freeze_copied=freeze_copied,
    )
    for problem in grown.warnings:
        typer.echo(f"nmtdeep: warning: {problem}", err=True)
    typer.echo(f"{grown.checkpoint}: grown from {'/'.join(grown.source.parts[-2:])}")
    for side, layer_map in grown.layers.items():
        names = ("new" if layer is None else str(layer + 1) for layer in layer_map)
        typer.echo(f"{side}: {counted(len(layer_map), 'layer')} from {' '.join(names)}")
    if grown.more:
        typer.echo("the original training had reached its end; raise its limit:")
    typer.echo(
        f"continue training with: nmtdeep train --data DIR --out {out} {grown.more}".rstrip()
    )
