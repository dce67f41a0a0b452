"""Learned weights of layer combinations, Figure 5 of Wang et al. 2019."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor

from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, grouped, origin, versions
from nmtdeep.checkpoint import Loaded
from nmtdeep.errors import UserError
from nmtdeep.model.layers.bridge import Transparent
from nmtdeep.model.transformer import Stack, Transformer
from nmtdeep.tables import table
from nmtdeep.units import percent

SMALL, SHARE = 0.1, 0.05
COLUMNS = ("where", "reader", "entries", "blank", "sum", "largest", "of", "newest")

Where = Literal["encoder", "decoder", "bridge"]


class CombinationWeight(NamedTuple):
    """The weight of one layer's output in the input of one layer.

    Attributes:
        where: the stack, or the bridge between the stacks.
        reader: the layer that reads, from 1, or `top`; of the bridge a layer of the decoder.
        entry: the layer whose output is weighted; 0 is the embedding.
        weight: as it is applied, after a softmax if there is one; mean over the groups of features.
        deviation: over these groups; None if all features share a weight.
        masked: whether the paper's figure would leave it blank.
    """

    where: Where
    reader: str
    entry: int
    weight: float
    deviation: float | None
    masked: bool


def measure(name: str, loaded: Loaded) -> Measurement:
    """The weights of one model; if it has none, a UserError."""
    rows = combination_weights(loaded.model)
    if not rows:
        raise UserError(
            "this model has no layer combination to show",
            where=name,
            hint="choose a run with combination: dlcl, dense, sparse_blocks or denseformer, or "
            "bridge: transparent",
        )
    tables = [table(COLUMNS, map(_summary, grouped(rows, "where", "reader").values()))]
    return Measurement(rows, {name: origin(loaded), **versions()}, tables, partial(_draw, rows))


def _draw(rows: Sequence[CombinationWeight], figure: pictures.Figure) -> None:
    """For each stack the matrix, and the weights of one layer's output along the stack.

    It is the output a third of the way up, as y10 of 30 in the paper.
    """
    stacks = grouped(rows, "where")
    sides = [([*grouped(own, "reader")], sorted(grouped(own, "entry"))) for own in stacks.values()]
    sizes = [pictures.heat_map_size(rows, [f"y{n}" for n in columns]) for rows, columns in sides]
    width, heights = max(size[0] for size in sizes), [size[1] for size in sizes]
    figure.set_size_inches(width + 6.0, sum(heights))
    axes = figure.subplots(
        len(stacks), 2, squeeze=False, width_ratios=[width, 6.0], height_ratios=heights
    )
    for pair, (where, stack), (readers, entries) in zip(axes, stacks.items(), sides, strict=True):
        matrix, bars = pair
        weights = {(row.reader, row.entry): None if row.masked else row.weight for row in stack}
        values = [[weights.get((reader, entry)) for entry in entries] for reader in readers]
        title = f"{where} (blank: below {SMALL} or {percent(SHARE, 0)} of the row's largest)"
        names = [f"y{entry}" for entry in entries]
        pictures.heat_map(matrix, values, rows=readers, columns=names, title=title)
        matrix.set(xlabel="output of layer", ylabel="read by layer")
        chosen = entries[round((len(entries) - 1) / 3)]
        along = [row for row in stack if row.entry == chosen]
        bars.bar(range(len(along)), [row.weight for row in along], **pictures.BARS)
        bars.axhline(0, color="0.0", linewidth=0.6)
        pictures.name_ticks(bars.xaxis, [row.reader for row in along])
        bars.set(xlabel="read by layer", ylabel=f"weight of y{chosen}, {where}")


def combination_weights(model: Transformer) -> list[CombinationWeight]:
    """All weights, bottom first; none if every layer reads only the newest output."""
    rows = list(_of_stack("encoder", model.encoder))
    if isinstance(model.bridge, Transparent):
        for number, shares in enumerate(model.bridge.weight.softmax(dim=1), start=1):
            rows += _of_reader("bridge", str(number), range(len(shares)), shares[:, None])
    return [*rows, *_of_stack("decoder", model.decoder)]


def is_masked(weight: float, row: Sequence[float]) -> bool:
    """|w| below 0.1 or below 5 % of the row's largest (Wang et al. 2019, section 6.4)."""
    return abs(weight) < SMALL or abs(weight) < SHARE * max(map(abs, row))


def _of_stack(where: Where, stack: Stack) -> Iterator[CombinationWeight]:
    for below, entries, shares in stack.combination.weight_rows():
        reader = str(below + 1) if below < len(stack.layers) else "top"
        yield from _of_reader(where, reader, entries, shares)


def _of_reader(
    where: Where, reader: str, entries: Sequence[int], shares: Tensor
) -> Iterator[CombinationWeight]:
    """Weights `(entries, groups)` of one reader."""
    numbers = shares.detach().double()
    means = numbers.mean(dim=1).tolist()
    for entry, mean, groups in zip(entries, means, numbers, strict=True):
        deviation = float(groups.std(correction=0)) if len(groups) > 1 else None
        yield CombinationWeight(where, reader, entry, mean, deviation, is_masked(mean, means))


def _summary(row: Sequence[CombinationWeight]) -> tuple[object, ...]:
    largest, total = max(row, key=lambda cell: abs(cell.weight)), sum(cell.weight for cell in row)
    counts = row[0].where, row[0].reader, len(row), sum(cell.masked for cell in row)
    weights = f"{total:.3f}", f"{largest.weight:.3f}", f"y{largest.entry}", f"{row[-1].weight:.3f}"
    return *counts, *weights
