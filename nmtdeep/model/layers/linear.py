"""Linear maps."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nmtdeep.model import kernels
from nmtdeep.model.layers.rounding import Rounding


class Linear(nn.Linear):
    """`torch.nn.Linear` that computes with `kernels.linear`, and max(0, .) of it if `relu`.

    Attributes:
        rounding: of weight and input to 8-bit integers; None: they are taken as they are.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, relu: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.relu = relu
        self.rounding: Rounding | None = None

    def forward(self, x: Tensor) -> Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        if self.rounding is not None:
            x = self.rounding.input(x)
        return kernels.linear(x, self.rounded_weight(), self.bias, relu=self.relu)

    def rounded_weight(self) -> Tensor:
        """The weight as products take it."""
        return self.weight if self.rounding is None else self.rounding.weight(self.weight)


def linear_of_rms_norm(x: Tensor, weight: Tensor, *, epsilon: float) -> Tensor:
    """RMSNorm(x) W^T of `(..., inputs)`, the norm's gain being part of W `(outputs, inputs)`.

    RMSNorm(x) = x / sqrt(mean(x^2) + epsilon); there is less to divide behind the map.
    """
    mean = x.square().mean(dim=-1, keepdim=True)
    return F.linear(x, weight) * (mean + epsilon).rsqrt()
