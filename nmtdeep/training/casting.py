"""The loss of a model whose weights are cast to low precision all at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from nmtdeep.data.batch import Batch
from nmtdeep.model.transformer import Transformer
from nmtdeep.training.loss import Loss


class CastLoss(nn.Module):
    """The loss of a batch, with the weights of all linear maps of the layers in another dtype.

    Autocast gives the same numbers, but casts each weight, and each gradient, by a kernel of its
    own: on a GPU a third of all kernels of an update.

    Args:
        model: in fp32.
        loss: `loss(model, batch)`, with autocast to `dtype`.
        dtype: bf16 or fp16.
    """

    def __init__(
        self, model: Transformer, loss: Callable[[Transformer, Batch], Loss], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.model = model
        self.compute = loss
        self.dtype = dtype
        layers = [*model.encoder.layers.modules(), *model.decoder.layers.modules()]
        maps = [module for module in layers if isinstance(module, nn.Linear)]
        of_maps = {id(each) for module in maps for each in module.parameters()}
        self.weights = {name: each for name, each in self.named_parameters() if id(each) in of_maps}

    def forward(self, batch: Batch) -> Loss:
        """With the weights that the modules have now."""
        return self.compute(self.model, batch)

    def loss(self, batch: Batch) -> Loss:
        """The sums of a batch."""
        cast: tuple[Tensor, ...] = _Cast.apply(self.dtype, *self.weights.values())  # type: ignore[no-untyped-call]
        weights = dict(zip(self.weights, cast, strict=True))
        return functional_call(self, weights, (batch,))


class _Cast(torch.autograd.Function):
    """Tensors in another dtype, and their gradients in their own."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.dtype = tensors[0].dtype
        return tuple(_copied(tensors, dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        copies = iter(_copied([each for each in gradients if each is not None], ctx.dtype))
        return None, *(None if each is None else next(copies) for each in gradients)


def _copied(tensors: Any, dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(each, dtype=dtype) for each in tensors]
    if copies:
        torch._foreach_copy_(copies, [each.detach() for each in tensors])
    return copies
