"""Attention of packed sentences on a GPU: which kernel is chosen."""

from types import SimpleNamespace

import pytest
import torch

from nmtdeep.model.kernels import gpu_attention


@pytest.mark.parametrize(
    ("dtype", "size", "longest", "triton", "expected"),
    [
        (torch.float16, 16, 256, True, "triton"),
        (torch.bfloat16, 64, 257, True, "FlashAttention"),
        (torch.bfloat16, 24, 30, True, "efficient"),
        (torch.bfloat16, 256, 100, True, "FlashAttention"),
        (torch.bfloat16, 512, 100, True, "efficient"),
        (torch.float32, 64, 300, True, "efficient"),
        (torch.bfloat16, 64, 64, False, "efficient"),
        (torch.bfloat16, 64, 65, False, "FlashAttention"),
        (torch.bfloat16, 12, 30, True, None),
        (torch.float64, 64, 30, True, None),
    ],
)
def test_choice(dtype, size, longest, triton, expected, monkeypatch):
    monkeypatch.setattr(gpu_attention, "TRITON", triton)
    x = SimpleNamespace(dtype=dtype, device=torch.device("cuda"), is_cuda=True)
    assert gpu_attention.form(x, size, longest) == expected
