"""The inter-similarity penalty against a loop over sentences and positions."""

import pytest
import torch

from nmtdeep.config.training import InterSimilarity, NoRegularizer
from nmtdeep.training.loss import batch_loss, inter_similarity, penalty


def test_inter_similarity_equals_a_loop():
    generator = torch.Generator().manual_seed(1)
    output = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64)
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    for row, length in ((0, 4), (1, 2)):
        real = output[row, :length]
        mean = real.sum(dim=0) / length
        cosines = [float(vector @ mean / (vector.norm() * mean.norm())) for vector in real]
        assert float(inter_similarity(output, mask)[row]) == pytest.approx(sum(cosines) / length)


def test_equal_positions_cost_nothing():
    output = torch.ones(1, 3, 4)
    mask = torch.ones(1, 3, dtype=torch.bool)
    cost = penalty(InterSimilarity(), [output, output], mask, torch.tensor([7]))
    assert cost == pytest.approx(0.0, abs=1e-6)
    assert penalty(NoRegularizer(), [output], mask, torch.tensor([7])) is None


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
