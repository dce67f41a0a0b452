"""Linear maps as modules."""

from __future__ import annotations

from torch import Tensor, nn

from nmtdeep.model import kernels


class Linear(nn.Linear):
    """`torch.nn.Linear` that computes with `kernels.linear`.

    Args:
        inputs: in_features.
        outputs: out_features.
        bias: whether the map has a bias.
        relu: whether max(0, .) follows.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, relu: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        return kernels.linear(x, self.weight, self.bias, relu=self.relu)
