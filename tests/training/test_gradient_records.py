"""Gradient norms of outer layers, against autograd's gradients of each update."""

import math

import pytest
import torch

from nmtdeep.analysis.records import FIGURES, read_records
from nmtdeep.config.stages import Frozen
from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.recorder import figures
from nmtdeep.training.step import Step
from nmtdeep.training.trainer import freeze
from training.tiny import records, trained

PLACES = {"encoder_first": 0, "encoder_last": 2, "decoder_first": 0, "decoder_last": 2}


def test_norms_equal_those_of_autograd_and_are_averaged(tiny_model, make_batch):
    batches = [make_batch([[5, 6, 7, 1]], [[9, 1]]), make_batch([[8, 1]], [[4, 5, 6, 1]])]
    # Clipping comes after the norms.
    settings = Training.model_validate({"record_gradients": True, "clip_norm": 0.01})
    step = Step(tiny_model(depth=3), settings)
    results, expected = [], dict.fromkeys(PLACES, 0.0)
    for update in (1, 2, 3):
        options = {"smoothing": 0.1, "dtype": torch.float64}
        losses = (batch_loss(step.model, each, **options) for each in batches)
        loss = sum(each.smoothed for each in losses) / 6  # target tokens
        for name, number in PLACES.items():
            layer = getattr(step.model, name.partition("_")[0]).layers[number]
            gradients = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
            squares = sum(float(gradient.square().sum()) for gradient in gradients)
            expected[name] += math.sqrt(squares) / 3
        results.append(step.update(RankBatches.single(batches), update, 0.01))
    record = figures(results, seconds=1.0)
    for name, value in expected.items():
        assert record[f"gradient_norm_{name}"] == pytest.approx(value, rel=1e-10)


def test_layers_that_are_not_trained_have_none(tiny_model, make_batch):
    model = tiny_model()
    freeze(model, Frozen(encoder=1, decoder="all"))
    step = Step(model, Training(record_gradients=True))
    result = step.update(RankBatches.single([make_batch([[5, 1]], [[9, 1]])]), 1, 0.01)
    assert list(result.layer_norms) == ["encoder_last"]


def test_records_have_them_if_the_recipe_says_so(tiny_run, tmp_path):
    settings = {"log_every": 2, "record_gradients": True}
    validation = {"bleu": False, "best_by": "loss"}
    run = trained(tiny_run, tmp_path / "run", max_updates=2, validation=validation, **settings)
    names = {f"gradient_norm_{name}" for name in PLACES}
    assert all(records(run)[0][name] > 0 for name in names)
    points = read_records("run", run)
    assert names <= FIGURES.keys() and names <= {point.figure for point in points}
