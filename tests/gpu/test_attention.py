"""Kernels for packed sentences on a GPU: equal to the formula, and captured in a CUDA graph."""

import numpy as np
import pytest
import torch

from nmtdeep.model.kernels import attention, gpu_attention
from nmtdeep.model.kernels.plain_attention import Mask
from nmtdeep.packing import Packing

LENGTHS = {
    "to 16": (1, 2, 15, 16, 7),
    "to 32": (17, 5, 32, 1),
    "to 64": (33, 64, 63, 40),
    "longer": (65, 130, 2, 256, 128),
    "few longer": (1, 130, *[9] * 20),
}
KINDS = ("causal", "whole", "across")
# Each kind, size, type and side of tiles is compiled.
CASES = [(name, kind, torch.bfloat16, 64, "triton") for name in LENGTHS for kind in KINDS]
CASES += [("longer", "causal", torch.float16, size, "triton") for size in (16, 32, 128)]
CASES += [
    ("to 64", kind, torch.bfloat16, 64, form)
    for kind in KINDS
    for form in ("efficient", "FlashAttention")
]


@pytest.fixture
def choose(device, monkeypatch):
    if device.type == "cpu":
        pytest.skip("a CPU has no kernel for packed sentences")
    if not gpu_attention.TRITON:
        pytest.skip("Triton is not installed")
    return lambda form: monkeypatch.setattr(gpu_attention, "form", lambda *_: form)


def packing(lengths, device):
    return Packing.of(np.array(lengths, dtype=np.int64)).to(device)


def tensors(lengths, parts, width, dtype, device):
    shape = (1, sum(lengths), parts * width)
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)


def both(inputs, mask, heads=2, dropout_p=0.0):
    read = attention(*inputs, heads=heads, mask=mask, dropout_p=dropout_p)
    towards = torch.linspace(-1, 1, read.numel(), device=read.device).view(read.shape)
    return read, *torch.autograd.grad(read, inputs, towards.to(read.dtype))


@pytest.mark.parametrize(("name", "kind", "dtype", "size", "form"), CASES)
def test_equals_padded_sentences_in_float64(name, kind, dtype, size, form, choose, device):
    torch.manual_seed(0)
    lengths, cross = LENGTHS[name], kind == "across"
    parts = [(lengths, 1), (lengths[::-1], 2)] if cross else [(lengths, 3)]
    inputs = [tensors(each, number, 2 * size, dtype, device) for each, number in parts]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    sides = {"queries": packing(lengths, device)}
    if cross:
        sides["keys"] = packing(lengths[::-1], device)
    mask = Mask(causal=kind == "causal", **sides)
    choose(form)
    given = both(inputs, mask)
    choose(None)
    for ours, theirs in zip(given, both(exact, mask), strict=True):
        tolerance = 2**-6 if dtype == torch.bfloat16 else 2**-9
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.parametrize("name", LENGTHS)
def test_triton_in_a_graph_draws_from_the_seed_before_the_replay(name, choose, device):
    """Tokens after the last sentence, NaN, have zeros; so have their gradients."""
    choose("triton")
    lengths = LENGTHS[name]
    inputs = [tensors((*lengths, 37), 3, 128, torch.bfloat16, device)]
    with torch.no_grad():
        inputs[0][:, -37:] = torch.nan
    mask = Mask(causal=True, queries=packing((*lengths, 0, 0), device))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        both(inputs, mask, dropout_p=0.3)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = both(inputs, mask, dropout_p=0.3)

    def replayed(seed):
        torch.cuda.manual_seed(seed)
        graph.replay()
        return [x.clone() for x in captured]

    first, again, other = (replayed(seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], other[0])
    for x in first:
        assert not x[:, -37:].any() and x.isfinite().all()
    torch.cuda.manual_seed(1)
    eager = both(inputs, mask, dropout_p=0.3)
    assert all(map(torch.equal, first, eager))


@pytest.mark.parametrize("form", ["triton", "efficient", "FlashAttention"])
def test_queries_without_keys_read_zeros_and_change_nothing(form, choose, device):
    choose(form)
    torch.manual_seed(0)
    results = []
    for counts in (([7, 5, 9], [4, 0, 6]), ([7, 9], [4, 6])):
        sides = [packing(each, device) for each in counts]
        torch.manual_seed(0)
        q, kv = (
            tensors(each, n, 128, torch.bfloat16, device)
            for each, n in zip(([7, 9], [4, 6]), (1, 2), strict=True)
        )
        if len(counts[0]) == 3:
            junk = torch.full((1, 5, 128), 3.0, dtype=torch.bfloat16, device=device)
            q = torch.cat((q[:, :7], junk, q[:, 7:]), dim=1).detach().requires_grad_()
        read = attention(q, kv, heads=2, mask=Mask(queries=sides[0], keys=sides[1]))
        dq, dkv = torch.autograd.grad(read.float().square().sum(), (q, kv))
        if len(counts[0]) == 3:
            assert not read[:, 7:12].any() and not dq[:, 7:12].any()
            read, dq = (torch.cat((each[:, :7], each[:, 12:]), dim=1) for each in (read, dq))
        results.append((read.detach(), dq, dkv))
    torch.testing.assert_close(results[0], results[1], rtol=2e-2, atol=2e-2)
