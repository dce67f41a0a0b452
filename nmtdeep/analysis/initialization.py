"""The effect of residual sums and their norms on the error signal, sublayer by sublayer.

A residual block reads z, forms the sum r = z + dropout(f(z)) and, where a norm is on the identity
path, returns o = LN(r) (Zhang et al. 2019, Eq. 10 and 11). With delta_z, delta_r and delta_o
the gradients of the loss at the real positions of a batch (Eq. 14):

    beta_LN = ||delta_r|| / ||delta_o||,  beta_RC = ||delta_z|| / ||delta_r||,
    beta = beta_RC beta_LN = ||delta_z|| / ||delta_o||.

Eq. 14 prints the two fractions in the other order; Eq. 12 and 13 and Table 1 are as here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Annotated, NamedTuple

from torch import Tensor

from nmtdeep.analysis.measurement import Column, Measurement, columns, grouped
from nmtdeep.analysis.probe import Passages, Probe, ProbeText, prepare, squared_gradient
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.recipe import Recipe
from nmtdeep.errors import UserError
from nmtdeep.model.initialization import Side
from nmtdeep.model.layers.norm import Norm
from nmtdeep.model.layers.residual import NormalizedResidual, Normed, Residual


class Block(NamedTuple):
    """A residual block, or with layer None the mean over the blocks of one kind of sublayer.

    Attributes:
        variance: Var(r), over the features of a position; mean over positions.
        beta_ln: None if no norm is on the identity path; beta is beta_RC then.
        w_over_sigma: mean gain of the norm that reads r, over the standard deviation of r over its
            features; mean over positions (Xu et al. 2020, Table 2). None if no norm reads r.
    """

    side: Annotated[Side, Column("side", role="panel")]
    layer: Annotated[int | None, Column("layer", role="x")]
    sublayer: Annotated[str, Column("sublayer", role="curve")]
    variance: Annotated[float, Column("Var(r)", role="y")]
    beta_ln: Annotated[float | None, Column("beta_LN", role="y")]
    beta_rc: Annotated[float, Column("beta_RC", role="y")]
    beta: Annotated[float, Column("beta", role="y")]
    w_over_sigma: Annotated[float | None, Column("w/sigma", role="y")]


FIGURES = Block._fields[3:]


def measure(name: str, subject: Recipe | Loaded, sample: ProbeText) -> Measurement:
    """The residual blocks of a recipe's initial model, or of a trained one."""
    probe = prepare(subject, sample)
    for side, stack in probe.stacks():
        if stack.combination.connects == "sublayers":
            what = f"the {side}'s layer combination takes the place of residual sums"
            raise UserError(what, where=name, hint="pass a model that has them in both stacks")
    blocks = residual_blocks(probe)
    text = {"numbers": "fp32", "text": sample.data.fingerprint[:16]}
    labels = {field: column.label for field, column in columns(blocks).items() if field != "layer"}
    summary = [{labels[key]: getattr(row, key) for key in labels} for row in means(blocks)]
    title, conditions = "Residual sums and their norms", {name: probe.conditions()} | text
    return Measurement(title, blocks, conditions, summary)


def residual_blocks(probe: Probe) -> list[Block]:
    """Every residual block, encoder first, bottom first."""
    modules = list(probe.model.modules())
    norms = [module for module in modules if isinstance(module, Norm)]
    wrappers = [module for module in modules if isinstance(module, Residual)]
    sums = {wrapper: Counter[str]() for wrapper in wrappers}
    for passages, real in probe.passes([*norms, *wrappers]):
        read_by = {id(passages[norm].inputs[0]): norm for norm in norms if norm in passages}
        for side, stack in probe.stacks():
            for wrapper in (wrapper for layer in stack for wrapper in layer):
                sums[wrapper].update(_sums(wrapper, passages, read_by, real[side]))
    return [
        _block(side, number, part.type, sums[wrapper])
        for side, stack in probe.stacks()
        for number, layer in enumerate(stack, start=1)
        for part, wrapper in zip(getattr(probe.recipe.model, side).sublayers, layer, strict=True)
    ]


def _block(side: Side, layer: int, sublayer: str, sums: Mapping[str, float]) -> Block:
    """A block from its sums over the real positions, r, z and o those of squared gradients."""
    variance = sums["variance"] / sums["positions"]
    beta_rc = _ratio(sums["z"], sums["r"])
    beta_ln = _ratio(sums["r"], sums["o"]) if "o" in sums else None
    beta = beta_rc if beta_ln is None else beta_ln * beta_rc
    gain = sums["w_over_sigma"] / sums["positions"] if "w_over_sigma" in sums else None
    return Block(side, layer, sublayer, variance, beta_ln, beta_rc, beta, gain)


def means(blocks: Iterable[Block]) -> list[Block]:
    """The mean over the layers that have a figure, as in Table 1 of Zhang et al. 2019."""
    rows = []
    for (side, sublayer), group in grouped(blocks, "side", "sublayer").items():
        figures: list[float | None] = []
        for name in FIGURES:
            values = [getattr(block, name) for block in group if getattr(block, name) is not None]
            figures.append(fmean(values) if values else None)
        rows.append(Block._make([side, None, sublayer, *figures]))
    return rows


def _sums(
    wrapper: Residual, passages: Passages, read_by: Mapping[int, Norm], real: Tensor
) -> dict[str, float]:
    """Sums over the real positions of one batch, of z, r and o those of squared gradients.

    z, the start of a block's identity path, and r, the sum in which it ends, are identified by
    object: in post-norm, r is what the norm read whose output the wrapper returned.
    """
    z, r = passages[wrapper].inputs[0], passages[wrapper].output
    if isinstance(wrapper, Normed):
        norm = passages[wrapper.norm]
        z = norm.output if isinstance(wrapper, NormalizedResidual) else z
        r = norm.inputs[0] if norm.output is r else r
    variances = r.detach()[real].double().var(dim=-1, correction=0)
    sums = {"positions": variances.numel(), "variance": float(variances.sum())}
    sums |= {"r": squared_gradient(r, real), "z": squared_gradient(z, real)}
    if reader := read_by.get(id(r)):
        gain = float(reader.weight.detach().mean())
        sums["w_over_sigma"] = gain * float(variances.rsqrt().sum())
        # Whether that norm is on the identity path and not on a branch: in post-norm it is the
        # wrapper's own; with `normalized` it is the next wrapper's or the stack's.
        is_own = reader is getattr(wrapper, "norm", None)
        if is_own or isinstance(wrapper, NormalizedResidual):
            sums["o"] = squared_gradient(passages[reader].output, real)
    return sums


def _ratio(above: float, below: float) -> float:
    return math.sqrt(above / below) if below else math.nan
