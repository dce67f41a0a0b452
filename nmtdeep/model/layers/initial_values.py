"""The description of a layer's parameters for an initializer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

Role = Literal["query", "key", "value", "output", "inner", "outer", "gate", "bridge"]


@dataclass(frozen=True)
class InitMatrix:
    """A matrix for the initializer to draw.

    Attributes:
        weight: `(fan_out, fan_in)`, or rows of a larger parameter.
        role: its purpose.
        fan_in: inputs of each output.
        fan_out: outputs of each input; all three of query, key and value together.
        across: True in cross-attention, which some count as three matrices.
    """

    weight: Tensor
    role: Role
    fan_in: int
    fan_out: int
    across: bool = False


def matrix(linear: nn.Linear, role: Role) -> InitMatrix:
    """The weight of one linear map."""
    return InitMatrix(linear.weight, role, linear.in_features, linear.out_features)


def projections(weight: Tensor, roles: Sequence[Role], *, across: bool = False) -> list[InitMatrix]:
    """Blocks of d rows, one for each role, of which three count as one matrix with 3d rows."""
    return [
        InitMatrix(rows, role, rows.shape[1], 3 * len(rows), across)
        for rows, role in zip(weight.chunk(len(roles)), roles, strict=True)
    ]
