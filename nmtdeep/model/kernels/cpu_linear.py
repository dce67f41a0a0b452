"""Linear maps by oneDNN on a CPU, fp32 as well as bf16.

torch computes fp32 products by MKL; oneDNN, which torch ships and uses for bf16, was a tenth to a
fifth faster on the AMD processor where both were measured (docs/log/performance-2026.md). It also
applies the bias and a ReLU while a result is still in a register.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# oneDNN generates code for each shape of a product, which takes some 10 ms, and keeps 1,024 of
# them. A training has more shapes, so that numbers of rows are filled up to a multiple of this.
STEP = 128
HAS_ONEDNN = torch.backends.mkldnn.is_available() and all(  # type: ignore[no-untyped-call]
    hasattr(torch.ops.mkldnn, name)
    for name in ("_linear_pointwise", "_reorder_linear_weight", "_is_mkldnn_bf16_supported")
)


def supports(x: Tensor, weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether oneDNN computes the product of these in `dtype` here."""
    if not HAS_ONEDNN or x.device.type != "cpu" or weight.device.type != "cpu":
        return False
    if dtype == torch.float32:
        return x.dtype == weight.dtype == dtype
    return dtype == torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool, dtype: torch.dtype
) -> Tensor:
    """x W^T + b in `dtype`, and max(0, .) of it if `relu`; gradients in the dtype of each input."""
    rows = x.reshape(-1, x.shape[-1])
    count = len(rows)
    if count > STEP and (missing := -count % STEP):
        rows = functional.pad(rows, (0, 0, 0, missing))
    y = _OneDnnLinear.apply(rows, weight, bias, relu, dtype)  # type: ignore[no-untyped-call]
    return y[:count].view(*x.shape[:-1], len(weight))


def product(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> Tensor:
    """The product itself, without a gradient; the weight may be in oneDNN's own layout."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "relu" if relu else "none", [], "")


class _OneDnnLinear(torch.autograd.Function):
    """The product of rows and its gradients; for the weight's gradient MKL is as fast."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, dtype: torch.dtype
    ) -> Tensor:
        ctx.dtypes = x.dtype, weight.dtype
        ctx.relu = relu
        x, weight = x.to(dtype), weight.to(dtype)
        y = product(x, weight, None if bias is None else bias.to(dtype), relu=relu)
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad = gradients[0]
        if ctx.relu:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        for_weight = None
        if needs_weight:
            # The product with more rows than columns is the faster one in fp32.
            wide = x.shape[1] > grad.shape[1]
            for_weight = ((x.t() @ grad).t() if wide else grad.t() @ x).to(ctx.dtypes[1])
        return (
            product(grad, weight.t(), None).to(ctx.dtypes[0]) if needs_x else None,
            for_weight,
            grad.sum(dim=0).to(ctx.dtypes[1]) if needs_bias else None,
            None,
            None,
        )
