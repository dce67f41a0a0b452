"""Learned weights of layer combinations, Figure 5 of Wang et al. 2019."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple

from torch import Tensor

from nmtdeep.analysis.measurement import Column, Measurement, grouped, origin
from nmtdeep.checkpoint import Loaded
from nmtdeep.errors import UserError
from nmtdeep.model.layers.bridge import Transparent
from nmtdeep.model.transformer import Transformer
from nmtdeep.units import percent

SMALL, SHARE = 0.1, 0.05


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

    where: Annotated[str, Column("stack", role="panel")]
    reader: Annotated[str, Column("read by layer", role="row")]
    entry: Annotated[int, Column("output of layer (0: embedding)", role="x")]
    weight: Annotated[float, Column("weight", role="y")]
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
    summary: list[dict[str, object]] = []
    for (where, reader), row in grouped(rows, "where", "reader").items():
        largest = max(row, key=lambda cell: abs(cell.weight))
        counts = {"entries": len(row), "blank": sum(cell.masked for cell in row)}
        weights = {"sum": sum(cell.weight for cell in row), "largest": largest.weight}
        ends = {"of": f"y{largest.entry}", "newest": row[-1].weight}
        summary.append({"where": where, "reader": reader} | counts | weights | ends)
    title = f"Weights of layers (blank: below {SMALL} or {percent(SHARE, 0)} of the row's largest)"
    drawn = [row for row in rows if not row.masked]
    return Measurement(title, rows, {name: origin(loaded)}, summary, drawn=drawn)


def combination_weights(model: Transformer) -> list[CombinationWeight]:
    """All weights, bottom first; none if every layer reads only the newest output."""
    rows = []
    for where, reader, entries, shares in _readers(model):
        numbers = shares.detach().double()
        means = numbers.mean(dim=1).tolist()
        for entry, mean, groups in zip(entries, means, numbers, strict=True):
            deviation = float(groups.std(correction=0)) if len(groups) > 1 else None
            masked = is_masked(mean, means)
            rows.append(CombinationWeight(where, reader, entry, mean, deviation, masked))
    return rows


def is_masked(weight: float, row: Sequence[float]) -> bool:
    """|w| below 0.1 or below 5 % of the row's largest (Wang et al. 2019, section 6.4)."""
    return abs(weight) < SMALL or abs(weight) < SHARE * max(map(abs, row))


def _readers(model: Transformer) -> Iterator[tuple[str, str, Sequence[int], Tensor]]:
    """Where a layer reads, its name, the entries and their weights `(entries, groups)`."""
    for where, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        if where == "decoder" and isinstance(model.bridge, Transparent):
            for number, shares in enumerate(model.bridge.weight.softmax(dim=1), start=1):
                yield "bridge", str(number), range(len(shares)), shares[:, None]
        for below, entries, shares in stack.combination.weight_rows():
            yield where, str(below + 1) if below < len(stack.layers) else "top", entries, shares
