"""Linear maps for inference on a CPU, whose weights are laid out for the machine once."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor, nn

from nmtdeep.model.kernels import cpu_linear
from nmtdeep.model.layers.linear import Linear
from nmtdeep.model.layers.merged_attention import MergedAttention

ENGINE = "onednn"


class PackedLinear(nn.Module):
    """x W^T + b by oneDNN in fp32 or bf16.

    torch lays a weight out for the processor's caches again in every call. With few rows, as when
    one token of each hypothesis is decoded, that costs more than the product itself.

    Args:
        weight: `(outputs, inputs)`.
        bias: `(outputs,)`, or None.
        relu: whether max(0, .) follows.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return cpu_linear.product(x, self.packed, self.bias, relu=self.relu)

    @staticmethod
    def supports(weight: Tensor) -> bool:
        """Whether this torch and this processor can do it."""
        return cpu_linear.supports(weight, weight, weight.dtype)


class QuantizedLinear(nn.Module):
    """x W^T + b in int8, fp32 on both sides.

    Each output's weights have their own scale. The inputs of one call share a scale, from their
    range: a sentence's result depends a little on the rest of its batch. Whole numbers have no NaN,
    so rows that are not finite are left out and are NaN in the result. Arguments as above.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, relu: bool = False) -> None:
        super().__init__()
        self.relu = relu
        weight = weight.detach()
        scales = weight.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zeros = torch.zeros(len(weight), dtype=torch.int64)
        # torch warns that these functions will be renamed.
        with warnings.catch_warnings(action="ignore"):
            rounded = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        engine = torch.backends.quantized.engine
        torch.backends.quantized.engine = ENGINE
        try:
            self.packed = torch.ops.quantized.linear_prepack(
                rounded, None if bias is None else bias.detach()
            )
        finally:
            torch.backends.quantized.engine = engine
        # Without VNNI the processor adds pairs of products in 16 bits, where 8-bit inputs overflow.
        self.reduced = not getattr(torch.cpu, "_is_vnni_supported", lambda: False)()

    def forward(self, x: Tensor) -> Tensor:
        if not math.isfinite(x.sum().item()):
            bad = ~x.isfinite().all(dim=-1, keepdim=True)
            if bad.any():
                return self(x.masked_fill(bad, 0.0)).masked_fill(bad, math.nan)
        ops = torch.ops.quantized
        product = ops.linear_relu_dynamic if self.relu else ops.linear_dynamic
        return product(x, self.packed, self.reduced)

    @staticmethod
    def supports(weight: Tensor) -> bool:
        """Whether this torch can do it."""
        available = ENGINE in torch.backends.quantized.supported_engines and hasattr(
            torch.ops.quantized, "linear_dynamic"
        )
        return available and weight.device.type == "cpu" and weight.dtype == torch.float32


Kind = type[PackedLinear] | type[QuantizedLinear]


def pack(model: nn.Module, kind: Kind) -> bool:
    """Replace every linear map of `model` by `kind`, for inference only.

    Returns:
        False, with the model unchanged, if `kind` is not supported here.
    """
    if not all(kind.supports(weight) for weight in model.parameters()):
        return False
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, MergedAttention):
            module.value = kind(*module.value_map())
        for name, child in module.named_children():
            if isinstance(child, Linear):
                setattr(module, name, kind(child.weight, child.bias, relu=child.relu))
    return True
