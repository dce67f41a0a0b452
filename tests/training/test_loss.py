"""The chunked loss against a dense matrix of targets, and with a penalty."""

import math

import pytest
import torch
from torch.nn.functional import linear
from torch.testing import assert_close

from nmtdeep.config.training import InterSimilarity
from nmtdeep.training import loss as loss_module
from nmtdeep.training.loss import (
    LossOptions,
    batch_loss,
    fused_sums,
    inter_similarity,
    smoothed_cross_entropy,
)

PAD, TYPES, WIDTH = 0, 7, 5
TARGETS = torch.tensor([[3, 6, 1, PAD], [2, 1, PAD, PAD], [5, 5, 4, 1]])
EXACT = {"rtol": 0, "atol": 1e-12}


def tensors(dtype=torch.float64):
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 4, WIDTH, generator=generator, dtype=torch.float64)
    weight = torch.randn(TYPES, WIDTH, generator=generator, dtype=torch.float64)
    return hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()


def dense(hidden, weight, smoothing, bias=0.0):
    """-sum q log p with the matrix q written out."""
    q = torch.zeros(3, 4, TYPES, dtype=torch.float64)
    for sentence in range(3):
        for place in range(4):
            target = int(TARGETS[sentence, place])
            for type_ in range(TYPES):
                if target != PAD:
                    share = 1 - smoothing if type_ == target else smoothing / (TYPES - 1)
                    q[sentence, place, type_] = share
    return -(q * (hidden @ weight.T + bias).log_softmax(dim=2)).sum()


# 9 real tokens, in one piece and cut at several boundaries.
@pytest.mark.parametrize(("chunk", "rows"), [(2048, 64), (1, 1), (4, 3), (9, 3)])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_value_and_gradients_equal_those_of_the_dense_matrix(smoothing, biased, chunk, rows):
    inputs = list(tensors())
    bias = torch.linspace(-1, 2, TYPES, dtype=torch.float64, requires_grad=True)
    inputs += [bias] * biased
    given = {"bias": bias if biased else None}
    how = LossOptions(smoothing, PAD, chunk=chunk, rows=rows)
    loss = smoothed_cross_entropy(*inputs[:2], TARGETS, how, **given)
    expected = dense(*inputs[:2], smoothing, *inputs[2:])
    assert_close(loss.smoothed, expected, **EXACT)
    assert_close(loss.nll, dense(*inputs[:2], 0.0, *inputs[2:]), **EXACT)
    gradients = [torch.autograd.grad(3 * each, inputs) for each in (loss.smoothed, expected)]
    assert_close(*gradients, **EXACT)
    known = smoothed_cross_entropy(*inputs[:2], TARGETS, how, tokens=9, **given)
    assert torch.equal(known.smoothed, loss.smoothed) and torch.equal(known.nll, loss.nll)
    with torch.no_grad():
        again = smoothed_cross_entropy(*inputs[:2], TARGETS, how, **given)
    assert_close(again, loss, **EXACT)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradients_are_computed_where_they_are_wanted_only(mode, monkeypatch):
    """One product for the logits of a chunk, and two more for the gradients."""
    inputs, calls = tensors(), []
    monkeypatch.setattr(loss_module, "linear", lambda *given: calls.append(1) or linear(*given))
    with mode():
        smoothed_cross_entropy(*inputs[:2], TARGETS, LossOptions(0.1, PAD, chunk=100))
    assert len(calls) == (3 if mode is torch.enable_grad else 1)


def test_padding_is_not_read():
    hidden, weight = tensors()
    loss = smoothed_cross_entropy(hidden, weight, TARGETS, LossOptions(0.1, PAD))
    copy = hidden.detach().clone()
    copy[TARGETS == PAD] = math.nan
    again = smoothed_cross_entropy(copy, weight, TARGETS, LossOptions(0.1, PAD))
    assert torch.equal(again.smoothed, loss.smoothed)


def test_large_logits_neither_overflow_nor_vanish():
    hidden = torch.tensor([[1000.0]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]])
    loss = smoothed_cross_entropy(hidden, weight, torch.tensor([1]), LossOptions(0.0, 9))
    loss.smoothed.backward()
    assert loss.smoothed.item() == 2000.0
    assert hidden.grad.tolist() == [[2.0]]  # p - q = (1, -1, 0) times the rows


def test_bf16_products_stay_close_to_fp32():
    hidden, weight = tensors(torch.float32)
    exact = smoothed_cross_entropy(hidden, weight, TARGETS, LossOptions(0.1, PAD))
    exact.smoothed.backward()
    gradients = hidden.grad, weight.grad
    hidden.grad = weight.grad = None
    how = LossOptions(0.1, PAD, dtype=torch.bfloat16)
    rough = smoothed_cross_entropy(hidden, weight, TARGETS, how)
    rough.smoothed.backward()
    assert rough.smoothed.dtype == hidden.grad.dtype == torch.float32
    assert 0 < (rough.smoothed - exact.smoothed).abs().item() < 0.01 * exact.smoothed.item()
    for gradient, expected in zip((hidden.grad, weight.grad), gradients, strict=True):
        assert (gradient - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_form_for_compilers_has_the_same_numbers(smoothing):
    hidden, weight = tensors()
    targets, every = TARGETS.flatten(), range(12)
    logits = (hidden.flatten(0, 1) @ weight.T).detach().requires_grad_()
    q = torch.full((12, TYPES), smoothing / (TYPES - 1), dtype=torch.float64)
    q[every, targets] = 1 - smoothing
    q[targets == PAD] = 0
    expected = -(q * logits.log_softmax(dim=1)).sum()
    expected.backward()
    loss, nll, gradient = fused_sums(logits.detach(), targets, smoothing, pad=PAD)
    assert_close(loss, expected, **EXACT)
    likelihoods = logits.log_softmax(dim=1)[every, targets]
    assert_close(nll, -likelihoods[targets != PAD].sum(), **EXACT)
    assert_close(gradient, logits.grad, **EXACT)


# The inter-similarity penalty, against a loop over sentences and positions


def test_inter_similarity_equals_a_loop():
    generator = torch.Generator().manual_seed(1)
    output = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    for row, length in ((0, 4), (1, 2)):
        real = output[row, :length]
        mean = real.sum(dim=0) / length
        cosines = [float(vector @ mean / (vector.norm() * mean.norm())) for vector in real]
        assert float(inter_similarity(output, mask)[row]) == pytest.approx(sum(cosines) / length)


def test_the_loss_has_the_penalty_of_each_layer_once_per_target_token(tiny_model, make_batch):
    model = tiny_model(depth=3)
    batch = make_batch([[5, 6, 7, 1], [8, 1]], [[9, 1], [4, 5, 6, 1]])
    settings = {"smoothing": 0.1, "dtype": torch.float64}
    plain = batch_loss(model, batch, **settings)
    regularized = batch_loss(model, batch, **settings, regularizer=InterSimilarity(weight=0.5))
    assert torch.equal(plain.nll, regularized.nll)
    _, outputs = model.encode_deeply(batch.source)
    expected = 0.0
    for row, (source, target) in enumerate(((4, 2), (2, 4))):
        for output in outputs[1:]:
            mask = torch.ones(1, source, dtype=torch.bool)
            similarity = inter_similarity(output[[row], :source], mask)
            expected += 0.5 * target * (1 - similarity.item())
    assert (regularized.smoothed - plain.smoothed).item() == pytest.approx(expected)
