"""Dropout with a cheap hash in place of random numbers, for the kernels that a compiler fuses.

There torch's own dropout draws ten rounds of Philox for each element, which takes longer than
reading and writing it, and writes a mask for the backward pass. Here one number of the generator is
mixed with the places of the elements by Wellons' `lowbias32`
(https://nullprogram.com/blog/2018/07/31/), and the backward pass does that again.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The multipliers of lowbias32, as signed numbers: products wrap.
FIRST, SECOND = 0x7FEB352D, 0x846CA68B - 2**32


def supports(x: Tensor) -> bool:
    """Whether `x` is on a GPU and passes through a compiler; uncompiled, this is many kernels."""
    return torch.compiler.is_compiling() and x.is_cuda and x.numel() < 2**31


def dropout(x: Tensor, probability: float) -> Tensor:
    """`torch.nn.functional.dropout` in training; the probability is rounded to a multiple of 2^-32.

    The seed is a number of the device's default generator.
    """
    from torch._inductor import inductor_prims  # takes long, and only compilers get here

    threshold = round(probability * 2**32)
    # As `torch.randint(2**63 - 1, ())`, for which Inductor would compute Philox in every kernel.
    seed = inductor_prims.seed(x.device)
    bits = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    bits = _mix(bits ^ seed.to(torch.int32), 16) * FIRST ^ (seed >> 32).to(torch.int32)
    bits = _mix(_mix(bits, 15) * SECOND, 16)
    return x * (bits >= threshold - 2**31) * (2**32 / (2**32 - threshold))


def _mix(bits: Tensor, shift: int) -> Tensor:
    """bits ^ (bits >> shift), where zeros are shifted in."""
    return bits ^ ((bits >> shift) & (2 ** (32 - shift) - 1))
