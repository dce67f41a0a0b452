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
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from torch import Tensor

from nmtdeep.analysis import pictures
from nmtdeep.analysis.measurement import Measurement, fixed, grouped, versions
from nmtdeep.analysis.probe import Passages, Probe, prepare, squared_gradient
from nmtdeep.checkpoint import Loaded
from nmtdeep.config.recipe import Recipe
from nmtdeep.data.corpus import DataDirectory
from nmtdeep.errors import UserError
from nmtdeep.model.initialization import Side
from nmtdeep.model.layers.norm import Norm
from nmtdeep.model.layers.residual import NormalizedResidual, Normed, Residual
from nmtdeep.tables import table

# The measured figures of a block: the heading of a table's column, and the label of an axis.
FIGURES = {
    "variance": ("Var(r)", "Var(r)"),
    "beta_ln": ("beta_LN", r"$\beta_\mathrm{LN}$"),
    "beta_rc": ("beta_RC", r"$\beta_\mathrm{RC}$"),
    "beta": ("beta", r"$\beta$"),
    "w_over_sigma": ("w/sigma", r"$w/\sigma$"),
}


class Block(NamedTuple):
    """A residual block, or with layer None the mean over the blocks of one kind of sublayer.

    Attributes:
        variance: Var(r), over the features of a position; mean over positions.
        beta_ln: None if no norm is on the identity path; beta is beta_RC then.
        w_over_sigma: mean gain of the norm that reads r, over the standard deviation of r over its
            features; mean over positions (Xu et al. 2020, Table 2). None if no norm reads r.
    """

    side: Side
    layer: int | None
    sublayer: str
    variance: float
    beta_ln: float | None
    beta_rc: float
    beta: float
    w_over_sigma: float | None


def measure(name: str, subject: Recipe | Loaded, data: DataDirectory, **how: Any) -> Measurement:
    """The residual blocks of a recipe's initial model, or of a trained one; `how` to `prepare`."""
    probe = prepare(subject, data, **how)
    for side, stack in probe.stacks():
        if stack.combination.connects == "sublayers":
            what = f"the {side}'s layer combination takes the place of residual sums"
            raise UserError(what, where=name, hint="pass a model that has them in both stacks")
    blocks = residual_blocks(probe)
    text = {"numbers": "fp32", "text": data.fingerprint[:16]}
    headings = ("side", "sublayer", *(heading for heading, _ in FIGURES.values()))
    cells = ([row.side, row.sublayer, *fixed(row, FIGURES)] for row in means(blocks))
    conditions = {name: probe.conditions(), **text, **versions()}
    return Measurement(blocks, conditions, [table(headings, cells, text=2)], partial(_draw, blocks))


def _draw(blocks: Sequence[Block], figure: pictures.Figure) -> None:
    """A figure in each row of panels, encoder and decoder side by side; a curve for each sublayer.

    If no norm is on the identity path, beta is beta_RC and is not drawn twice.
    """
    known = {name for name in FIGURES for block in blocks if getattr(block, name) is not None}
    shown = [name for name in FIGURES if name in known and (name != "beta" or "beta_ln" in known)]
    over = [
        pictures.Panel(f"{FIGURES[name][1]}, {side}", name, {"side": side})
        for name, side in product(shown, grouped(blocks, "side"))
    ]
    pictures.plot(figure, grouped(blocks, "sublayer"), over=over, x="layer")


def residual_blocks(probe: Probe) -> list[Block]:
    """Every residual block, encoder first, bottom first."""
    modules = list(probe.model.modules())
    norms = [module for module in modules if isinstance(module, Norm)]
    wrappers = [module for module in modules if isinstance(module, Residual)]
    sums = {wrapper: Counter[str]() for wrapper in wrappers}
    readers: dict[Residual, Norm | None] = {}
    for passages, real in probe.passes([*norms, *wrappers]):
        read_by = {id(passages[norm].inputs[0]): norm for norm in norms if norm in passages}
        for side, stack in probe.stacks():
            for wrapper in (wrapper for layer in stack for wrapper in layer):
                z, r = _ends(wrapper, passages)
                reader = readers[wrapper] = read_by.get(id(r))
                # Whether that norm is on the identity path and not on a branch: in post-norm it is
                # the wrapper's own; with `normalized` it is the next wrapper's or the stack's.
                own = getattr(wrapper, "norm", None)
                on_path = isinstance(wrapper, NormalizedResidual) or reader is own
                o = passages[reader].output if reader is not None and on_path else None
                sums[wrapper].update(_sums(z, r, o, real[side]))
    return [
        Block(side, number, part.type, **_figures(sums[wrapper], readers[wrapper]))
        for side, stack in probe.stacks()
        for number, layer in enumerate(stack, start=1)
        for part, wrapper in zip(getattr(probe.recipe.model, side).sublayers, layer, strict=True)
    ]


def means(blocks: Iterable[Block]) -> list[Block]:
    """The mean over the layers that have a figure, as in Table 1 of Zhang et al. 2019."""
    rows = []
    for (side, sublayer), group in grouped(blocks, "side", "sublayer").items():
        figures: dict[str, Any] = {}
        for name in FIGURES:
            values = [getattr(block, name) for block in group if getattr(block, name) is not None]
            figures[name] = fmean(values) if values else None
        rows.append(Block(side, None, sublayer, **figures))
    return rows


def _ends(wrapper: Residual, passages: Passages) -> tuple[Tensor, Tensor]:
    """The start of a block's identity path, z, and the sum in which it ends, r.

    They are identified by object: in post-norm, r is what the norm read whose output the wrapper
    returned.
    """
    read, returned = passages[wrapper].inputs[0], passages[wrapper].output
    if not isinstance(wrapper, Normed):
        return read, returned
    norm = passages[wrapper.norm]
    z = norm.output if isinstance(wrapper, NormalizedResidual) else read
    return z, norm.inputs[0] if norm.output is returned else returned


def _sums(z: Tensor, r: Tensor, o: Tensor | None, real: Tensor) -> dict[str, float]:
    """Sums over the real positions of one batch; those of squared gradients by tensor."""
    variances = r.detach()[real].double().var(dim=-1, correction=0)
    sums = {
        "positions": variances.numel(),
        "variance": float(variances.sum()),
        "inverse_sigma": float(variances.rsqrt().sum()),
        "r": squared_gradient(r, real),
        "z": squared_gradient(z, real),
    }
    return sums if o is None else sums | {"o": squared_gradient(o, real)}


def _figures(sums: Mapping[str, float], reader: Norm | None) -> dict[str, Any]:
    """The figures of a block from its sums and the norm that reads r."""
    beta_rc = _ratio(sums["z"], sums["r"])
    beta_ln = _ratio(sums["r"], sums["o"]) if "o" in sums else None
    gain = None if reader is None else float(reader.weight.detach().mean())
    return {
        "variance": sums["variance"] / sums["positions"],
        "beta_ln": beta_ln,
        "beta_rc": beta_rc,
        "beta": beta_rc if beta_ln is None else beta_ln * beta_rc,
        "w_over_sigma": gain and gain * sums["inverse_sigma"] / sums["positions"],
    }


def _ratio(above: float, below: float) -> float:
    """Ratio of two norms, from their squares."""
    return math.sqrt(above / below) if below else math.nan
