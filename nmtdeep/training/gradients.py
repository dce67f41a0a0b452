"""Norms of gradients: of the whole model, and of the first and the last layer of both stacks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nmtdeep.model.transformer import Transformer
from nmtdeep.training.sharding import whole


def outer_layers(model: Transformer) -> dict[str, list[nn.Parameter]]:
    """The trained parameters of each stack's first and last layer, as in `encoder_first`."""
    stacks = {"encoder": model.encoder.layers, "decoder": model.decoder.layers}
    layers = {
        f"{side}_{place}": [each for each in stack[number].parameters() if each.requires_grad]
        for side, stack in stacks.items()
        for place, number in (("first", 0), ("last", -1))
    }
    return {name: parameters for name, parameters in layers.items() if parameters}


def gradient_norm(parameters: Iterable[Tensor]) -> Tensor:
    """Norm of the gradients of all `parameters`, as one vector over all ranks."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return whole(torch.nn.utils.get_total_norm(gradients))
