"""Residual blocks as tables, as rows of a CSV, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from typing import Any

import torch
from rich.table import Table

from nmtdeep import tables
from nmtdeep.analysis.findings import Findings
from nmtdeep.analysis.initialization import Block, Figures, averaged, measure
from nmtdeep.analysis.panels import Curve, Curves, Picture
from nmtdeep.analysis.probe import conditions, prepare, trained
from nmtdeep.analysis.subject import called
from nmtdeep.checkpoint import Loaded
from nmtdeep.config import Recipe
from nmtdeep.data.corpus import DataDirectory

HEADINGS = ("Var(r)", "beta_LN", "beta_RC", "beta", "w/sigma")
FORMULAS = ("Var(r)", r"$\beta_\mathrm{LN}$", r"$\beta_\mathrm{RC}$", r"$\beta$", r"$w/\sigma$")


def table(blocks: Sequence[Block]) -> Table:
    """One row a block; a dash where a figure does not apply."""
    by_layer = any(block.layer is not None for block in blocks)
    columns = dict.fromkeys(("side", *(["layer"] if by_layer else []), "sublayer"), "left")
    rows = []
    for block in blocks:
        figures = (None if value is None else f"{value:.3f}" for value in astuple(block.figures))
        rows.append((block.side, *([block.layer] if by_layer else []), block.sublayer, *figures))
    return tables.table(columns | dict.fromkeys(HEADINGS, "right"), rows)


def find(
    name: str,
    subject: Recipe | Loaded,
    data: DataDirectory,
    *,
    tokens: int,
    device: torch.device,
    after: int,
    layers: bool,
) -> Findings:
    """The residual blocks of a recipe's model at its start, or of a trained one.

    Args:
        after: updates to train a recipe's model before.
        layers: whether there is a table of every layer besides that of the means.
    """
    updates: int | None = after
    if isinstance(subject, Loaded):
        probe = trained(subject, data, tokens=tokens, device=device)
        name, updates = called(name, subject), subject.state.get("update")
        recipe = subject.recipe
    else:
        probe = prepare(subject, data, tokens=tokens, device=device, updates=after)
        recipe = subject
    made = conditions(name, recipe, data, probe, updates)
    blocks = measure(probe, recipe.model)
    means = averaged(blocks)
    return Findings(
        rows(blocks),
        [*([table(blocks)] if layers else []), table(means)],
        lambda: picture(blocks),
        asdict(made),
        str(made),
        called="layers",
        besides={"averages": [_without_layer(row) for row in rows(means)]},
    )


def rows(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """What a CSV holds: None where a figure does not apply."""
    return [
        {"side": block.side, "layer": block.layer, "sublayer": block.sublayer}
        | asdict(block.figures)
        for block in blocks
    ]


def picture(blocks: Sequence[Block]) -> Picture:
    """A figure in each row, encoder and decoder side by side; a line style a sublayer.

    Where no norm stands on the identity path, beta is beta_RC and not drawn twice.
    """
    panels = []
    sublayers = list(dict.fromkeys((block.side, block.sublayer) for block in blocks))
    for figure, formula in zip((field.name for field in fields(Figures)), FORMULAS, strict=True):
        found = {
            side: [
                curve
                for where, sublayer in sublayers
                if where == side and (curve := _curve(blocks, side, sublayer, figure)).x
            ]
            for side in ("encoder", "decoder")
        }
        doubled = figure == "beta" and all(block.figures.beta_ln is None for block in blocks)
        if any(found.values()) and not doubled:
            panels += [
                Curves(curves, "layer", f"{formula}, {side}", is_formula=True)
                for side, curves in found.items()
            ]
    return Picture(panels, columns=2)


def _curve(blocks: Sequence[Block], side: str, sublayer: str, figure: str) -> Curve:
    """The figure of one kind of sublayer by layer, where it applies."""
    values = {
        block.layer: value
        for block in blocks
        if (block.side, block.sublayer) == (side, sublayer)
        and (value := getattr(block.figures, figure)) is not None
        and block.layer is not None
    }
    return Curve(list(values), list(values.values()), sublayer)


def _without_layer(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "layer"}
