"""Linear maps; on a CPU their products go through oneDNN, fp32 as well as bf16.

torch gives fp32 products to MKL; oneDNN, which torch ships and uses for bf16, was a tenth to a
fifth faster on the AMD processor where both were measured (docs/performance.md). It also applies
the bias and a ReLU while a result is still in a register.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_has_onednn = torch.backends.mkldnn.is_available() and hasattr(  # type: ignore[no-untyped-call]
    torch.ops.mkldnn, "_linear_pointwise"
)


class Linear(nn.Linear):
    """`torch.nn.Linear` that computes with `linear`.

    Args:
        inputs: in_features.
        outputs: out_features.
        bias: whether there is one.
        relu: whether max(0, .) follows.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, relu: bool = False) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """`(..., in_features)` to `(..., out_features)`."""
        return linear(x, self.weight, self.bias, relu=self.relu)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """x W^T + b, or max(0, x W^T + b), of `(..., in)` and a `(out, in)` weight.

    Under autocast in its dtype, as `torch.nn.functional.linear`.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else x.dtype
    if not _suits_onednn(x, weight, dtype):
        y = F.linear(x, weight, bias)
        return torch.relu(y) if relu else y
    rows = _Linear.apply(x.reshape(-1, x.shape[-1]), weight, bias, relu, dtype)  # type: ignore[no-untyped-call]
    return rows.view(*x.shape[:-1], len(weight))  # type: ignore[no-any-return]


def _suits_onednn(x: Tensor, weight: Tensor, dtype: torch.dtype) -> bool:
    ours = _has_onednn and x.device.type == "cpu" and weight.device.type == "cpu"
    if dtype == torch.float32:
        return ours and x.dtype == weight.dtype == dtype
    return ours and dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str = "none") -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "")  # type: ignore[no-any-return]


def _across(grad: Tensor, x: Tensor) -> Tensor:
    """grad^T x, by the product with more rows than columns, which is the faster one in fp32."""
    return (x.t() @ grad).t() if x.shape[1] > grad.shape[1] else grad.t() @ x


class _Linear(torch.autograd.Function):
    """The product of rows and its gradients; for the weight's, MKL is as fast."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, dtype: torch.dtype
    ) -> Tensor:
        ctx.dtypes = x.dtype, weight.dtype
        ctx.relu = relu
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
        y = _product(x, weight, bias, "relu" if relu else "none")
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad = gradients[0]
        if ctx.relu:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        return (
            _product(grad, weight.t(), None).to(ctx.dtypes[0]) if needs_x else None,
            _across(grad, x).to(ctx.dtypes[1]) if needs_weight else None,
            grad.sum(dim=0).to(ctx.dtypes[1]) if needs_bias else None,
            None,
            None,
        )
