"""Triton's attention in Triton's interpreter; tests/gpu has the kernels themselves."""

import numpy as np
import pytest
import torch
from torch import library
from torch.testing import assert_close

if torch.cuda.is_available():
    pytest.skip("a GPU computes the kernels", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed")
from model.kernels.interpreted import interpreted
from nmtdeep.model.kernels import attention, gpu_attention, triton_attention
from nmtdeep.model.kernels.plain_attention import Mask, separate
from nmtdeep.model.layers.attention import CrossAttention, SelfAttention
from nmtdeep.model.layers.sublayer import Context
from nmtdeep.packing import Packing

EXACT = {"rtol": 0, "atol": 1e-12}
TAIL = 5  # tokens after the last sentence
SHORT, LONG, FEW_LONG = (1, 2, 15, 16, 17, 9, 0, 0), (63, 64, 65, 130, 0), (1, 40, 7, 3, 0)


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    """Packed batches go to Triton's kernel, and that to its interpreter."""
    monkeypatch.setattr(gpu_attention, "form", lambda *_: "triton")
    with interpreted():
        yield


def packing(lengths):
    return Packing.of(np.array(lengths, dtype=np.int64))


def tensors(parts, width, dtype=torch.float64):
    """Random `(1, tokens, parts width)`, NaN in the tail."""
    generator = torch.Generator().manual_seed(3)
    made = []
    for lengths, number in parts:
        x = torch.randn(1, sum(lengths) + TAIL, number * width, generator=generator).to(dtype)
        x[:, -TAIL:] = torch.nan
        made.append(x.requires_grad_())
    return made


def formula(inputs, lengths, heads, causal, noise=lambda sentence: torch.ones(())):
    """softmax(q k^T / sqrt(d_h)) * noise v of each sentence alone, zeros in the tail."""
    q, k, v = (part[0].unflatten(1, (heads, -1)) for part in separate(tuple(inputs)))
    sides = (x[:-TAIL].split(lengths[side]) for x, side in ((q, 0), (k, 1), (v, 1)))
    read = []
    for sentence, (a, b, c) in enumerate(zip(*sides, strict=True)):
        scores = torch.einsum("qhd,khd->hqk", a, b) / q.shape[2] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
        weights = scores.softmax(2) * noise(sentence)
        read.append(torch.einsum("hqk,khd->qhd", weights, c).flatten(1))
    return torch.cat([*read, q.new_zeros(TAIL, q[0].numel())])[None]


def towards(y):
    """A gradient of the results, NaN in the tail."""
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(4)).to(y.dtype)
    g[:, -TAIL:] = torch.nan
    return g


def gradients(y, inputs):
    return torch.autograd.grad(y, inputs, towards(y))


def wanted(y, inputs):
    """The gradients of `formula`, zeros in the tail."""
    grads = torch.autograd.grad(y, inputs, towards(y).nan_to_num())
    return [grad.nan_to_num() for grad in grads]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("lengths", "heads", "size"), [(SHORT, 3, 16), (LONG, 1, 32), (FEW_LONG, 2, 64)]
)
def test_self_attention(lengths, heads, size, causal):
    inputs = tensors([(lengths, 3)], heads * size)
    mask = Mask(causal=causal, queries=packing(lengths))
    ours = attention(*inputs, heads=heads, mask=mask)
    theirs = formula(inputs, (lengths, lengths), heads, causal)
    assert_close(ours, theirs, **EXACT)
    assert_close(list(gradients(ours, inputs)), wanted(theirs, inputs), **EXACT)


@pytest.mark.parametrize("parts", [(2,), (1, 1)])
@pytest.mark.parametrize("keys", [(7, 16, 1, 3, 17, 0, 0), (70, 1, 64, 33, 130, 0, 0)])
def test_cross_attention(keys, parts):
    queries = (2, 65, 16, 31, 1, 0, 0)
    inputs = tensors([(queries, 1), *((keys, number) for number in parts)], 32)
    mask = Mask(queries=packing(queries), keys=packing(keys))
    ours = attention(*inputs, heads=2, mask=mask)
    theirs = formula(inputs, (queries, keys), 2, False)
    assert_close(ours, theirs, **EXACT)
    assert_close(list(gradients(ours, inputs)), wanted(theirs, inputs), **EXACT)


def test_sentences_without_keys_or_without_queries_have_zeros():
    q, kv = inputs = tensors([((3, 2), 1), ((0, 4), 2)], 16)
    mask = Mask(queries=packing((3, 2)), keys=packing((0, 4)))
    read = attention(*inputs, heads=1, mask=mask)
    dq, _ = gradients(read, inputs)
    assert not read[:, :3].any() and not dq[:, :3].any()
    mask = Mask(queries=packing((0, 5)), keys=packing((3, 1)))
    _, dkv = gradients(attention(q, kv, heads=1, mask=mask), inputs)
    assert not dkv[:, :3].any() and dkv[:, 3].any()


def test_fp16_is_summed_in_fp32():
    inputs = tensors([(SHORT, 3)], 64, torch.float16)
    ours = attention(*inputs, heads=2, mask=Mask(queries=packing(SHORT)))
    exact = [x.detach().double().requires_grad_() for x in inputs]
    theirs = formula(exact, (SHORT, SHORT), 2, False)
    assert_close(ours.double(), theirs, rtol=2**-10, atol=2**-10)
    (given,), (want,) = gradients(ours, inputs), wanted(theirs, exact)
    assert given.dtype == torch.float16
    assert_close(given.double(), want, rtol=2**-9, atol=2**-8)


# Dropout: values are unit vectors, so that the results are the weights.
LENGTHS, HEADS, SIZE, RATE = (64, 33, 64, 17, 48), 2, 64, 0.3


def dropped(seed):
    inputs = tensors([(LENGTHS, 3)], HEADS * SIZE)
    with torch.no_grad():
        units = torch.cat([torch.eye(SIZE)[:length] for length in LENGTHS])
        inputs[0][0, :-TAIL, 2 * HEADS * SIZE :] = units.repeat(1, HEADS)
    torch.manual_seed(seed)
    mask = Mask(queries=packing(LENGTHS))
    return attention(*inputs, heads=HEADS, mask=mask, dropout_p=RATE), inputs


def kept(read):
    """`(heads, queries, keys)` of each sentence."""
    split = read[0, :-TAIL].unflatten(1, (HEADS, SIZE)).transpose(0, 1).split(LENGTHS, dim=1)
    return [part[:, :, :length] != 0 for part, length in zip(split, LENGTHS, strict=True)]


def test_dropout_has_one_mask_in_both_passes():
    ours, inputs = dropped(seed=1)
    masks = kept(ours.detach())
    scale = torch.tensor(1 / (1 - RATE), dtype=torch.float64)
    theirs = formula(inputs, (LENGTHS,) * 2, HEADS, False, lambda each: masks[each] * scale)
    close = {"rtol": 0, "atol": 1e-9}  # the rate is one of 2^32
    assert_close(ours, theirs, **close)
    assert_close(list(gradients(ours, inputs)), wanted(theirs, inputs), **close)


def test_dropout_keeps_the_rest_and_draws_each_weight_by_itself():
    first, again, other = (dropped(seed)[0].detach() for seed in (1, 1, 2))
    assert torch.equal(first, again)
    noise, others = ([mask.double() - (1 - RATE) for mask in kept(read)] for read in (first, other))
    pairs = {
        "rate": [each.flatten() for each in noise],
        "queries": [(each[:, 1:] * each[:, :-1]).flatten() for each in noise],
        "keys": [(each[:, :, 1:] * each[:, :, :-1]).flatten() for each in noise],
        "diagonals": [(each[:, 1:, 1:] * each[:, :-1, :-1]).flatten() for each in noise],
        "heads": [(each[0] * each[1]).flatten() for each in noise],
        "sentences": [(noise[0] * noise[2]).flatten()],
        "seeds": [(a * b).flatten() for a, b in zip(noise, others, strict=True)],
    }
    for name, each in pairs.items():
        products = torch.cat(each)
        deviation = (RATE * (1 - RATE)) ** (0.5 if name == "rate" else 1)
        assert products.mean().abs() < 4 * deviation / len(products) ** 0.5, name


@pytest.mark.parametrize("across", [False, True])
def test_the_operation_is_what_the_compiler_is_told(across):
    inputs = tensors([(SHORT, 1), (SHORT, 2)] if across else [(SHORT, 3)], 32)
    offsets = packing(SHORT).offsets
    arguments = (inputs[0], inputs[1] if across else None, 2, 0.0, offsets, offsets, 17, False)
    for x in inputs:
        x.detach().nan_to_num_()
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    library.opcheck(triton_attention.packed_attention, arguments, test_utils=checks)


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
def test_a_compiled_layer_has_one_graph(across):
    torch.manual_seed(0)
    make = CrossAttention(32, 2) if across else SelfAttention(32, 2, causal=True)
    layer = make.double()
    compiled = torch.compile(layer, backend="eager", dynamic=True, fullgraph=True)
    for lengths in (SHORT, FEW_LONG):
        x = torch.randn(1, sum(lengths), 32, dtype=torch.float64, requires_grad=True)
        memory = torch.randn(1, sum(SHORT[: len(lengths)]), 32, dtype=torch.float64)
        spans = (packing(lengths), packing(SHORT[: len(lengths)]))
        context = Context(packing=spans[0], memory=memory, memory_packing=spans[1])
        results = []
        for form in (layer, compiled):
            read = form(x, context)
            results.append([read, *torch.autograd.grad(read.sin().sum(), [x, *layer.parameters()])])
        assert_close(*results, **EXACT)
