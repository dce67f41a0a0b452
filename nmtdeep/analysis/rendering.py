"""Residual blocks as a table, as CSV, as a record for JSON."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from nmtdeep.analysis.file import replacing
from nmtdeep.analysis.initialisation import Block, Figures
from nmtdeep.analysis.probe import Conditions

HEADINGS = ("Var(r)", "beta_LN", "beta_RC", "beta", "w/sigma")


def table(blocks: Sequence[Block]) -> Table:
    """One row a block; a dash where a figure does not apply."""
    rows = Table(box=SIMPLE_HEAD, pad_edge=False)
    by_layer = any(block.layer is not None for block in blocks)
    for heading in ("side", *(["layer"] if by_layer else []), "sublayer"):
        rows.add_column(heading)
    for heading in HEADINGS:
        rows.add_column(heading, justify="right")
    for block in blocks:
        values = ("-" if value is None else f"{value:.3f}" for value in astuple(block.figures))
        rows.add_row(block.side, *([str(block.layer)] if by_layer else []), block.sublayer, *values)
    return rows


def record(blocks: Sequence[Block], averages: Sequence[Block], made: Conditions) -> dict[str, Any]:
    """Conditions, the mean over the layers, and every layer."""
    return {
        "conditions": asdict(made),
        "averages": [_flat(block) for block in averages],
        "layers": [_flat(block) for block in blocks],
    }


def write_csv(blocks: Sequence[Block], path: Path) -> None:
    """One row a block, with a header; empty where a figure does not apply."""
    names = ["side", "layer", "sublayer", *(field.name for field in fields(Figures))]
    with replacing(path) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for block in blocks:
            figures = ("" if value is None else f"{value:.6g}" for value in astuple(block.figures))
            writer.writerow((block.side, block.layer, block.sublayer, *figures))


def _flat(block: Block) -> dict[str, Any]:
    where = {"side": block.side, "layer": block.layer, "sublayer": block.sublayer}
    return {name: value for name, value in where.items() if value is not None} | asdict(
        block.figures
    )
