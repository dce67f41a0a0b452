"""How strongly residual sums and their norms change the error signal, sublayer by sublayer.

A residual block reads z, forms the sum r = z + dropout(f(z)) and, where a norm stands on the
identity path, gives o = LN(r) (Zhang et al. 2019, Eq. 10 and 11). With delta_z, delta_r and delta_o
the gradients of the loss at the real positions of a batch (Eq. 14):

    beta_LN = ||delta_r|| / ||delta_o||,  beta_RC = ||delta_z|| / ||delta_r||,
    beta = beta_RC beta_LN = ||delta_z|| / ||delta_o||.

Eq. 14 prints the two fractions in the other order; Eq. 12 and 13 and Table 1 are as here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import NamedTuple

from torch import Tensor, nn

from nmtdeep.analysis.probe import Passage, Probe, squared_gradient
from nmtdeep.config.model import Model
from nmtdeep.model.build import ENCODER_SUBLAYERS
from nmtdeep.model.initialization import Side
from nmtdeep.model.layers.residual import NormalizedResidual, Normed, Residual


@dataclass(frozen=True)
class Figures:
    """What is measured of a residual block, or the mean over several.

    Attributes:
        variance: Var(r), over the features of a position; mean over positions.
        beta_ln: None where no norm stands on the identity path.
        beta_rc: as defined at the head of this module.
        beta: the product; beta_RC alone where there is no beta_LN.
        w_over_sigma: mean gain of the norm that reads r, over the standard deviation of r over its
            features; mean over positions (Xu et al. 2020, Table 2). None if no norm reads r.
    """

    variance: float
    beta_ln: float | None
    beta_rc: float
    beta: float
    w_over_sigma: float | None


@dataclass(frozen=True)
class Block:
    """Where a residual block stands; `layer` counts from 1, None stands for all layers."""

    side: Side
    layer: int | None
    sublayer: str
    figures: Figures


@dataclass
class Sums:
    """What adds up over batches: squared gradients at o, r and z, and figures by position.

    Attributes:
        reader: the norm that reads r.
        o: None where no norm stands on the identity path.
    """

    reader: nn.LayerNorm | None
    positions: int = 0
    variance: float = 0.0
    inverse_sigma: float = 0.0
    o: float | None = None
    r: float = 0.0
    z: float = 0.0

    def figures(self) -> Figures:
        """Divide once."""
        beta_ln = None if self.o is None else _ratio(self.r, self.o)
        beta_rc = _ratio(self.z, self.r)
        gain = None if self.reader is None else float(self.reader.weight.detach().mean())
        return Figures(
            variance=self.variance / self.positions,
            beta_ln=beta_ln,
            beta_rc=beta_rc,
            beta=beta_rc if beta_ln is None else beta_ln * beta_rc,
            w_over_sigma=None if gain is None else gain * self.inverse_sigma / self.positions,
        )


def measure(probe: Probe, model: Model) -> list[Block]:
    """Every residual block, encoder first, bottom first.

    Args:
        probe: its gradients are overwritten.
        model: the recipe's section `model`, for the names of sublayers.
    """
    modules = list(probe.model.modules())
    norms = [module for module in modules if isinstance(module, nn.LayerNorm)]
    wrappers = [module for module in modules if isinstance(module, Residual)]
    sums: dict[nn.Module, Sums] = {}
    for seen, real in probe.passes([*norms, *wrappers]):
        readers = {id(seen[norm].read): norm for norm in norms if norm in seen}
        for side, stack in probe.stacks():
            for wrapper in (one for layer in stack for one in layer):
                _add(sums, wrapper, seen, readers, real[side])
    names: dict[Side, Sequence[str]] = {
        "encoder": [part.type for part in ENCODER_SUBLAYERS],
        "decoder": [part.type for part in model.decoder.sublayers],
    }
    return [
        Block(side, number, name, sums[wrapper].figures())
        for side, stack in probe.stacks()
        for number, layer in enumerate(stack, start=1)
        for name, wrapper in zip(names[side], layer, strict=True)
    ]


def averaged(blocks: Iterable[Block]) -> list[Block]:
    """The mean over the layers of each sublayer and side, as in Table 1 of Zhang et al. 2019."""
    groups: dict[tuple[Side, str], list[Figures]] = {}
    for block in blocks:
        groups.setdefault((block.side, block.sublayer), []).append(block.figures)
    return [Block(side, None, name, _mean(found)) for (side, name), found in groups.items()]


def _mean(found: Sequence[Figures]) -> Figures:
    """The mean of each figure over the blocks that have it."""
    columns = {
        field.name: [value for one in found if (value := getattr(one, field.name)) is not None]
        for field in fields(Figures)
    }
    return Figures(**{name: fmean(values) if values else None for name, values in columns.items()})  # type: ignore[arg-type]


def _add(
    sums: dict[nn.Module, Sums],
    wrapper: Residual,
    seen: dict[nn.Module, Passage],
    readers: dict[int, nn.LayerNorm],
    real: Tensor,
) -> None:
    """Add one wrapper's part of a batch, after the backward pass."""
    z, r = _ends(wrapper, seen)
    reader = readers.get(id(r))
    total = sums.setdefault(wrapper, Sums(reader))
    variances = r.detach()[real].double().var(dim=-1, correction=0)
    total.positions += variances.numel()
    total.variance += float(variances.sum())
    total.inverse_sigma += float(variances.rsqrt().sum())
    total.r += squared_gradient(r, real)
    total.z += squared_gradient(z, real)
    if reader is not None and _is_on_the_identity_path(reader, wrapper):
        total.o = (total.o or 0.0) + squared_gradient(seen[reader].gave, real)


class Ends(NamedTuple):
    """Where the identity path of a block starts, z, and the sum in which it ends, r."""

    z: Tensor
    r: Tensor


def _ends(wrapper: Residual, seen: dict[nn.Module, Passage]) -> Ends:
    """Found by identity: in post-norm, r is what the norm read whose output the wrapper gave."""
    read, gave = seen[wrapper]
    if not isinstance(wrapper, Normed):
        return Ends(read, gave)
    norm = seen[wrapper.norm]
    z = norm.gave if isinstance(wrapper, NormalizedResidual) else read
    return Ends(z, norm.read if norm.gave is gave else gave)


def _is_on_the_identity_path(reader: nn.LayerNorm, wrapper: Residual) -> bool:
    """A wrapper's own norm reads its sum in post-norm, the next one's in the released v1."""
    return isinstance(wrapper, NormalizedResidual) or reader is getattr(wrapper, "norm", None)


def _ratio(above: float, below: float) -> float:
    """Of norms, from their squares."""
    return math.sqrt(above / below) if below else math.nan
