"""Attention of packed sentences on a GPU: which kernel is chosen, and when Triton is imported."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nmtdeep.model.kernels import gpu_attention

ROOT = Path(__file__).parents[3]


def test_triton_is_imported_by_its_first_use_only():
    code = "import sys, nmtdeep.training.step; sys.exit('triton' in sys.modules)"
    subprocess.run((sys.executable, "-c", code), cwd=ROOT, check=True)


@pytest.mark.parametrize(
    ("dtype", "size", "longest", "triton", "expected"),
    [
        (torch.float16, 16, 256, True, "triton"),
        (torch.bfloat16, 64, 257, True, "FlashAttention"),
        (torch.bfloat16, 24, 30, True, "efficient"),
        (torch.bfloat16, 256, 100, True, "FlashAttention"),
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
