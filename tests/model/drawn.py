"""Random tensors and parameters."""

import torch
from torch import Tensor, nn


def drawn(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def some_function(number: int, x: Tensor) -> Tensor:
    """Another one for each sublayer."""
    return torch.sin((number + 1) * x.roll(1, dims=-1))


def filled(module: nn.Module, deviation: float = 1.0, seed: int = 1) -> nn.Module:
    """The module in float64 with normal parameters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.normal_(0, deviation, generator=generator)
    return module


def started(module: nn.Module) -> nn.Module:
    """The module in float64 with the constants that it starts a training with."""
    with torch.no_grad():
        for part in module.double().modules():
            if hasattr(part, "init_constants"):
                for parameter, value in part.init_constants():
                    parameter.copy_(value)
    return module
