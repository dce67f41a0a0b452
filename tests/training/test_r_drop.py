"""R-Drop against two explicit passes, with their divergences by torch's `kl_div`."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from nmtdeep.config.training import RDrop
from nmtdeep.model.layers.dropout import Dropout
from nmtdeep.training.loss import LossOptions, batch_loss, fused_sums, smoothed_cross_entropy

PAD, ALPHA, SMOOTHING = 0, 3.0, 0.1
EXACT = {"rtol": 0, "atol": 1e-12}


def both(first, second, targets):
    """Smoothed loss and nll of two passes' logits `(sentences, target, types)`, position by
    position: sums over both passes, as in the authors' release."""
    total, nll = torch.zeros(2, dtype=torch.float64)
    for place in (targets != PAD).nonzero():
        passes = [logits[tuple(place)].log_softmax(dim=0) for logits in (first, second)]
        target = targets[tuple(place)]
        for log_p, log_q in (passes, passes[::-1]):
            rest = SMOOTHING / (len(log_p) - 1)
            q = torch.full_like(log_p, rest).index_fill(0, target, 1 - SMOOTHING)
            kl = F.kl_div(log_q, log_p, log_target=True, reduction="sum")  # KL(p || q)
            total = total - q @ log_p + ALPHA / 2 * kl
            nll = nll - log_p[target]
    return total, nll


@pytest.mark.parametrize(("chunk", "rows"), [(2048, 64), (2, 2), (6, 4), (8, 64)])
def test_value_and_gradients_equal_those_of_torch(chunk, rows):
    targets = torch.tensor([[3, 6, 1, PAD], [2, 1, PAD, PAD], [5, 5, 4, 1]])
    hidden = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    how = LossOptions(SMOOTHING, PAD, alpha=ALPHA, chunk=chunk, rows=rows)
    doubled = hidden.flatten(0, 1), weight, torch.cat((targets, targets))
    for tokens in (None, 18):
        loss = smoothed_cross_entropy(*doubled, how, tokens=tokens)
        expected, nll = both(*(hidden @ weight.T), targets)
        assert_close((loss.smoothed, loss.nll), (expected, nll), **EXACT)
        gradients = torch.autograd.grad(loss.smoothed, (hidden, weight))
        assert_close(gradients, torch.autograd.grad(expected, (hidden, weight)), **EXACT)


def test_the_fused_form_without_padding_gives_the_same():
    logits = torch.randn(6, 9, dtype=torch.float64, requires_grad=True)  # 3 pairs of neighbors
    targets = torch.tensor([2, 2, 8, 8, 1, 1])
    expected, nll = both(logits[0::2], logits[1::2], targets[0::2])
    fused = fused_sums(logits.detach(), targets, SMOOTHING, ALPHA)
    assert_close(fused, (expected, nll, *torch.autograd.grad(expected, logits)), **EXACT)


@pytest.fixture
def passes(monkeypatch):
    """The passes that each batch holds, one after the other; each has dropout masks of its own."""
    current = [0, 1]

    def forward(self, x):
        def mask(number):
            generator = torch.Generator().manual_seed(1000 * number + x[0].numel())
            return 2.0 * torch.rand(x[0].shape, generator=generator).round().to(x.dtype)

        parts = x.chunk(len(current))
        return torch.cat([part * mask(n) for n, part in zip(current, parts, strict=True)])

    monkeypatch.setattr(Dropout, "forward", forward)
    yield current


def test_a_batch_equals_two_passes_with_the_same_masks(passes, tiny_model, make_batch):
    model = tiny_model()
    batch = make_batch([[5, 6, 7, 1], [8, 1]], [[9, 1], [4, 5, 6, 1]])
    options = {"smoothing": SMOOTHING, "dtype": torch.float64}
    loss = batch_loss(model, batch, **options, regularizer=RDrop(alpha=ALPHA))
    logits = []
    for number in (0, 1):
        passes[:] = [number]
        logits.append(model.output(model(batch.source, batch.target_input)))
    assert not torch.allclose(*logits)
    expected, nll = both(*logits, batch.target_output)
    assert_close((loss.smoothed, loss.nll), (expected / 2, nll / 2), **EXACT)
    weights = list(model.parameters())
    gradients = torch.autograd.grad(loss.smoothed, weights)
    assert_close(gradients, torch.autograd.grad(expected / 2, weights), **EXACT)


def test_each_pass_has_masks_of_its_own(tiny_model, make_batch):
    batch = make_batch([[5, 6, 7, 1], [8, 1]], [[9, 1], [4, 5, 6, 1]])
    options = {"smoothing": SMOOTHING, "dtype": torch.float64}
    noisy = tiny_model(dropout=0.3).train()
    loss = batch_loss(noisy, batch, **options, regularizer=RDrop())
    without = batch_loss(noisy, batch, **options, regularizer=RDrop(alpha=1e-9))
    assert loss.smoothed.item() > without.smoothed.item() + 0.1
