"""Learned weights of layer combinations, Figure 5 of Wang et al. 2019."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from nmtdeep.analysis.findings import Findings, signed
from nmtdeep.analysis.panels import Bars, HeatMap, Panel, Picture
from nmtdeep.analysis.subject import signature
from nmtdeep.checkpoint import Loaded
from nmtdeep.errors import UserError
from nmtdeep.model.layers.bridge import Transparent
from nmtdeep.model.layers.combination import LinearCombination
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.tables import table
from nmtdeep.units import percent

SMALL, SHARE = 0.1, 0.05

Where = Literal["encoder", "decoder", "bridge"]


@dataclass(frozen=True)
class Weight:
    """How much of one output is in what one layer reads.

    Attributes:
        where: the stack, or the bridge between them.
        reader: what reads: a layer from 1, or `top`; of the bridge a layer of the decoder.
        entry: layer whose output is weighed; 0 is the embedding.
        weight: as it is applied, after a softmax if there is one; mean over the groups of features.
        deviation: over these groups; None where all features share a weight.
        masked: whether the paper's figure would leave it blank.
    """

    where: Where
    reader: str
    entry: int
    weight: float
    deviation: float | None
    masked: bool


def combination_weights(model: Transformer) -> list[Weight]:
    """All weights, bottom first; none if every layer reads the newest output alone."""
    return [
        *_of_stack("encoder", model.encoder),
        *_of_bridge(model),
        *_of_stack("decoder", model.decoder),
    ]


def is_masked(weight: float, row: Sequence[float]) -> bool:
    """|w| below 0.1 or below 5 % of the row's largest (Wang et al. 2019, section 6.4)."""
    return abs(weight) < SMALL or abs(weight) < SHARE * max(map(abs, row))


def find(name: str, loaded: Loaded, layer: int | None) -> Findings:
    """The weights of one model.

    Args:
        name: what the model is called.
        layer: whose weights along the stack are drawn; None: a third of the way up, as y10 of 30.

    Raises:
        UserError: if there are none, or none of that layer.
    """
    weights = combination_weights(loaded.model)
    if not weights:
        raise UserError(
            f"{name}: every layer of this model reads the layer below it alone, with no weights to "
            "look at: give a model with combination dlcl, dense or sparse_blocks, or with bridge "
            "transparent"
        )
    entries = {weight.entry for weight in weights}
    if layer is not None and layer not in entries:
        raise UserError(
            f"--layer {layer}: outputs {' '.join(map(str, sorted(entries)))} are weighed: choose "
            "one of these (0 is the embedding)"
        )
    made = signature({name: loaded})
    headings = ("reader", "entries", "blank", "sum", "largest", "of", "newest")
    columns = {"where": "left"} | dict.fromkeys(headings, "right")
    return Findings(
        weights,
        [table(columns, (_summary(row) for row in _rows(weights)))],
        lambda: _picture(weights, layer),
        made,
        signed(made),
    )


def _of_stack(where: Where, stack: Stack) -> Iterator[Weight]:
    combination = stack.combination
    if not isinstance(combination, LinearCombination):
        return
    ends, depth = combination.boundaries, len(stack.layers)
    for row, end in enumerate(ends):
        shares = combination.shares(row)
        reader = str(end + 1) if end < depth else "top"
        yield from _row(where, reader, ends[row + 1 - len(shares) : row + 1], shares)


def _of_bridge(model: Transformer) -> Iterator[Weight]:
    if isinstance(model.bridge, Transparent):
        for row, shares in enumerate(model.bridge.weight.softmax(dim=1)):
            yield from _row("bridge", str(row + 1), range(len(shares)), shares[:, None])


def _row(where: Where, reader: str, entries: Sequence[int], shares: Tensor) -> Iterator[Weight]:
    """Weights `(entries, groups)` of one reader."""
    numbers = shares.detach().double()
    means = numbers.mean(dim=1).tolist()
    for entry, mean, groups in zip(entries, means, numbers, strict=True):
        deviation = float(groups.std(correction=0)) if len(groups) > 1 else None
        yield Weight(where, reader, entry, mean, deviation, is_masked(mean, means))


def _rows(weights: Sequence[Weight]) -> Iterator[list[Weight]]:
    """The weights of each reader."""
    for key in dict.fromkeys((weight.where, weight.reader) for weight in weights):
        yield [weight for weight in weights if (weight.where, weight.reader) == key]


def _summary(row: Sequence[Weight]) -> tuple[object, ...]:
    largest = max(row, key=lambda weight: abs(weight.weight))
    return (
        row[0].where,
        row[0].reader,
        len(row),
        sum(weight.masked for weight in row),
        f"{math.fsum(weight.weight for weight in row):.3f}",
        f"{largest.weight:.3f}",
        f"y{largest.entry}",
        f"{row[-1].weight:.3f}",
    )


def _picture(weights: Sequence[Weight], layer: int | None) -> Picture:
    """For each stack the matrix, and the weights of one output along the stack."""
    panels: list[Panel] = []
    for where in dict.fromkeys(weight.where for weight in weights):
        found = [weight for weight in weights if weight.where == where]
        panels.append(_matrix(where, found))
        entries = sorted({weight.entry for weight in found})
        chosen = entries[round((len(entries) - 1) / 3)] if layer is None else layer
        if len(entries) > 1 and chosen in entries:
            along = [weight for weight in found if weight.entry == chosen]
            series = {"": [weight.weight for weight in along]}
            readers = [weight.reader for weight in along]
            panels.append(Bars(readers, series, "read by layer", f"weight of y{chosen}, {where}"))
    return Picture(panels)


def _matrix(where: Where, weights: Sequence[Weight]) -> HeatMap:
    readers = list(dict.fromkeys(weight.reader for weight in weights))
    entries = sorted({weight.entry for weight in weights})
    values = {(one.reader, one.entry): math.nan if one.masked else one.weight for one in weights}
    return HeatMap(
        [[values.get((reader, entry)) for entry in entries] for reader in readers],
        rows=readers,
        columns=[f"y{entry}" for entry in entries],
        row_label="read by layer",
        column_label="output of layer",
        title=f"{where} (blank: below {SMALL} or {percent(SHARE, 0)} of the row's largest)",
    )
