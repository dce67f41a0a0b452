"""Updates on a GPU: as on a CPU, resumed, grown, overflowing, out of memory, without waits."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from nmtdeep import checkpoint
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Training
from nmtdeep.training.loop import train
from nmtdeep.training.step import PRECISIONS, Step
from tests.training.test_memory import Memory

CPU = torch.device("cpu")
# Large, so that a gradient that is zero by nature (of the key biases) stays small as a step.
ADAM, MUON = ({"type": name, "epsilon": 1e-3} for name in ("adam", "muon"))


def step_of(model, device, precision="fp32", **more):
    settings = Training.model_validate({"clip_norm": 0.5, "optimizer": ADAM, **more})
    return Step(model, settings, dtype=PRECISIONS[precision], device=device)


def values(model):
    return {name: value.detach().cpu().clone() for name, value in model.named_parameters()}


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({}, 1e-4),
        ({"optimizer": MUON}, 5e-2),  # a GPU may multiply in bf16 there
        ({"regularizer": "inter_similarity"}, 1e-4),
        ({"checkpoint_activations": "layers"}, 1e-4),
    ],
)
def test_updates_move_weights_as_on_a_cpu(changes, tolerance, device, make_model, make_share):
    models = make_model(torch.float64), make_model()
    before, places = values(models[0]), (CPU, device)
    steps = [step_of(*both, **changes) for both in zip(models, places, strict=True)]
    shares = [make_share(place, 8, 5) for place in places]
    for number in (1, 2, 3):
        pairs = zip(steps, shares, strict=True)
        exact, given = (step.update(share, number, 0.01) for step, share in pairs)
        assert given.gradient_norm == pytest.approx(exact.gradient_norm, rel=1e-4)
        assert given.loss == pytest.approx(exact.loss, rel=1e-5)
    after, given_after = map(values, models)
    moved = [after[name] - value for name, value in before.items()]
    apart = [after[name] - value for name, value in given_after.items()]
    norm = torch.nn.utils.get_total_norm
    assert norm(apart) <= tolerance * norm(moved)


@pytest.fixture
def trained(tiny_run, tmp_path):
    """`trained("run", device, 6)`: weights and moments after update 6, of a run that grows after 3.

    A run that exists is resumed.
    """
    training = {
        "optimizer": ADAM,
        "precision": "fp32",
        "schedule": {"type": "inverse_square_root", "lr": 0.01, "warmup_updates": 2},
        "batches": {"tokens_per_update": 400, "group_tokens": 200, "max_tokens": 200},
        "stages": [{"encoder": 1, "updates": 3}, {}],
        "validation": {"bleu": False, "best_by": "loss"},
    }

    def run(name, device, updates, dropout=0.0):
        described = tiny_run.recipe.model_dump()
        described["model"]["dropout"] = dict.fromkeys(described["model"]["dropout"], dropout)
        described["training"] = {**training, "max_updates": updates}
        recipe, out = Recipe.model_validate(described), tmp_path / name
        assert train(recipe, data=tiny_run.data.path, out=out, device=str(device), quiet=True) == 0
        files = (checkpoint.MODEL, checkpoint.OPTIMIZER)
        parts = [checkpoint.read_tensors(out / f"checkpoint_{updates}" / file) for file in files]
        return parts[0] | parts[1]

    return run


@pytest.mark.parametrize("stop", [2, 3, 5])
def test_a_resumed_and_grown_training_equals_the_uninterrupted_one(stop, device, trained):
    trained("resumed", device, stop, 0.2)
    resumed, whole = (trained(name, device, 6, 0.2) for name in ("resumed", "whole"))
    assert_close(resumed, whole, rtol=0, atol=1e-5)


def test_a_training_moves_between_devices(device, trained):
    for place, stop in ((device, 2), (CPU, 4)):
        trained("moved", place, stop)
    assert_close(trained("moved", device, 6), trained("whole", CPU, 6), rtol=0, atol=1e-5)


def test_an_overflow_of_fp16_skips_the_update(device, make_model, make_share):
    share, scale = make_share(device, 8), 2.0**33
    exact = step_of(make_model(), device).update(share, 1, 0.01)
    step = step_of(make_model(), device, "fp16")
    step.scaler = torch.amp.GradScaler(device.type, init_scale=scale)
    before = values(step.model)
    while (result := step.update(share, 1, 0.01)).skipped:
        scale /= 2
        assert (result.scale, result.is_bad) == (scale, False)
        assert all(torch.equal(value, before[name]) for name, value in values(step.model).items())
    assert 2 < scale < 2**33
    assert result.loss == pytest.approx(exact.loss, rel=2e-3)
    assert result.gradient_norm == pytest.approx(exact.gradient_norm, rel=1e-2)


@contextmanager
def little_memory(step, share):
    """Two thirds of the memory that `share` needs; on a CPU an error where it would run out."""
    device, cuda = step.device, torch.cuda
    if device.type == "cpu":
        Memory(step.model, share.batches[0][1].source.numel() * 2 // 3)
        yield
        return
    cuda.empty_cache()
    cuda.reset_peak_memory_stats(device)
    held = cuda.memory_allocated(device)
    step.accumulate(share, 1)
    needed = cuda.max_memory_allocated(device) - held
    step.optimizer.zero_grad(set_to_none=True)
    cuda.empty_cache()
    allowed = cuda.memory_reserved(device) + needed * 2 // 3
    total = cuda.get_device_properties(device).total_memory
    cuda.set_per_process_memory_fraction(allowed / total, device)
    yield
    cuda.set_per_process_memory_fraction(1.0, device)


def test_an_update_out_of_memory_is_divided_and_the_same(device, make_model, make_share):
    whole, short = step_of(make_model(), device), step_of(make_model(), device)
    share = make_share(device, 400, longest=64)
    expected = whole.update(share, 1, 0.01)
    with little_memory(short, share):
        result = short.update(share, 1, 0.01)
    assert 0 < result.max_tokens == short.limit.tokens < share.batches[0][1].source.numel()
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-5)


def test_the_host_waits_for_an_update_once(device, make_model, make_share):
    if device.type == "cpu":
        pytest.skip("only a GPU is waited for")
    step, share = step_of(make_model(), device, "bf16"), make_share(device, 8, 5)
    step.update(share, 1, 0.01)  # creates moments and tables
    try:
        torch.cuda.set_sync_debug_mode("error")
        step.accumulate(share, 2)
        torch.cuda.set_sync_debug_mode("warn")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step.update(share, 2, 0.01)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [each for each in caught if "synchronizing" in str(each.message)]
    assert [Path(each.filename).name for each in waits] == ["step.py"], waits


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_updates_twice_give_the_same_bytes(precision, device, tiny_model, make_share):
    def weights():
        model = tiny_model(width=64, feed_forward=128, dropout=0.1, dtype=torch.float32)
        step = step_of(model, device, precision)
        for update in range(1, 6):
            step.update(share, update, 1e-3)
        return list(model.parameters())

    share = make_share(device, 200, types=20)
    torch.use_deterministic_algorithms(True)  # as in docs/reliability.md
    try:
        assert all(map(torch.equal, weights(), weights()))
    finally:
        torch.use_deterministic_algorithms(False)
