"""The moving average of weights: a loop over updates, resumed, grown, validated."""

import pytest
import torch
from torch.testing import assert_close

from nmtdeep import checkpoint
from nmtdeep.config.recipe import Recipe
from nmtdeep.training.setup import Setup
from nmtdeep.training.trainer import Trainer, initialized_model
from nmtdeep.training.validation import corpus_loss
from training.tiny import equal, records, trained

DECAY = 0.35  # more than d of the first three updates, less than that of the others
D = [2 / 11, 3 / 12, 4 / 13, DECAY, DECAY, DECAY]


@pytest.fixture(scope="module")
def run(tiny_run, tmp_path_factory):
    """`run("name", 6, ema=DECAY)`: a training of 6 updates with every checkpoint; it is resumed."""
    root = tmp_path_factory.mktemp("runs")
    settings = {
        "batches": {"tokens_per_update": 400, "group_tokens": 200},
        "schedule": {"type": "inverse_square_root", "lr": 0.01, "warmup_updates": 2},
        "validation": {"every": 3, "bleu": False, "best_by": "loss"},
        "checkpoints": {"every": 1, "keep_last": 20},
        "precision": "fp32",
    }

    def train_to(name, updates, **more):
        return trained(tiny_run, root / name, max_updates=updates, **settings, **more)

    return train_to


def read(run, update):
    """Weights of a checkpoint; moments; and the latest weights, where they are others."""
    path = run / f"checkpoint_{update}"
    weights, moments = (
        checkpoint.read_tensors(path / file) for file in (checkpoint.MODEL, checkpoint.OPTIMIZER)
    )
    moments.pop("averaged", None)
    names = [name for name in moments if name.startswith("weight/")]
    return weights, moments, {name.removeprefix("weight/"): moments.pop(name) for name in names}


def test_checkpoints_hold_the_average_and_training_goes_on_from_the_latest_weights(run, tiny_run):
    averaged, plain = run("averaged", 6, ema=DECAY), run("plain", 6)
    recipe = checkpoint.load_model(plain).recipe
    expected = checkpoint.weights(initialized_model(Setup(recipe, tiny_run.data)))
    for update, d in enumerate(D, start=1):
        latest, moments, _ = read(plain, update)
        expected = {name: d * expected[name] + (1 - d) * latest[name] for name in expected}
        weights, others, kept = read(averaged, update)
        assert_close(weights, expected, rtol=0, atol=1e-6)
        assert equal(kept, latest) and equal(others, moments)
    valid = tiny_run.data.corpus("valid")
    setup = Setup(recipe, tiny_run.data)
    loaded = checkpoint.load_model(averaged / "checkpoint_3")
    record = records(averaged, "validation")[0]
    _, nll = corpus_loss(loaded.model, valid, setup)
    assert record["valid_nll"] == pytest.approx(nll, rel=1e-6), "the average is validated"
    checkpoint.load_weights(loaded.model, read(averaged, 3)[2], averaged)
    assert abs(corpus_loss(loaded.model, valid, setup)[1] - nll) > 1e-4


def test_a_resumed_run_equals_the_uninterrupted_one(run):
    run("resumed", 2, ema=DECAY)
    resumed = run("resumed", 6, ema=DECAY)
    assert all(map(equal, read(run("averaged", 6, ema=DECAY), 6), read(resumed, 6)))


def test_an_average_may_end_and_begin_in_a_run(run):
    run("changed", 2, ema=DECAY)
    run("changed", 4)
    changed, plain = run("changed", 5, ema=DECAY), run("plain", 6)
    (start, moments, none), (latest, *_) = read(changed, 4), read(plain, 5)
    assert equal(start, read(plain, 4)[0])
    assert moments and not none
    expected = {name: D[0] * start[name] + (1 - D[0]) * latest[name] for name in start}
    assert_close(read(changed, 5)[0], expected, rtol=0, atol=1e-6)


def test_a_grown_model_begins_a_new_average(tiny_run):
    described = tiny_run.recipe.model_dump() | {"training": {"ema": DECAY}}
    trainer = Trainer(Setup(Recipe.model_validate(described), tiny_run.data))
    described["model"]["encoder"]["depth"] = 3
    for weight in trainer.average.weights.values():
        weight.zero_()
    trainer.average.updates = 40_000
    grown = trainer.grown(Setup(Recipe.model_validate(described), tiny_run.data))
    assert_close(grown.average.weights, checkpoint.weights(grown.model), rtol=0, atol=0)
    name = "encoder.layers.1.sublayers.0.sublayer.output.weight"
    assert torch.equal(grown.average.weights[name], trainer.model.get_parameter(name))
    before = grown.average.weights[name].clone()
    with torch.no_grad():
        grown.model.get_parameter(name).add_(1)
    grown.average.add()
    assert_close(grown.average.weights[name], before + 1 - D[0], rtol=0, atol=1e-6)
