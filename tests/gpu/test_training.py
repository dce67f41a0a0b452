"""Updates on a GPU: as on a CPU, resumed, grown, overflowing, out of memory, without waits."""

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
from nmtdeep.training.setup import PRECISIONS, TrainingJob
from nmtdeep.training.step import Step
from tests.training.test_memory import Memory

CPU = torch.device("cpu")
# Large, so that a gradient that is zero by nature (of the key biases) stays small as a step.
ADAM, MUON = ({"type": name, "epsilon": 1e-3} for name in ("adam", "muon"))
CHANGES = [{}, {"optimizer": MUON}, {"regularizer": "inter_similarity"}]
CHANGES += [{"checkpoint_activations": "layers"}, {"regularizer": "r_drop"}]


def step_of(model, device, precision="fp32", **more):
    settings = Training.model_validate({"clip_norm": 0.5, "optimizer": ADAM, **more})
    return Step(model, settings, dtype=PRECISIONS[precision], device=device)


def values(model):
    return {name: value.detach().cpu().clone() for name, value in model.named_parameters()}


def norm_of(given, other):
    """The norm of the difference of two models' weights."""
    return float(torch.nn.utils.get_total_norm([given[name] - other[name] for name in given]))


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_updates_move_weights_as_on_a_cpu(changes, device, make_model, make_share):
    exact = step_of(make_model(torch.float64), CPU, **changes)
    given = step_of(make_model(), device, **changes)
    shares = [make_share(place, **changes) for place in (CPU, device)]
    before = values(exact.model)
    for number in (1, 2, 3):
        pairs = zip((exact, given), shares, strict=True)
        each = [step.update(share, number, 0.01) for step, share in pairs]
        assert each[1].loss == pytest.approx(each[0].loss, rel=1e-3)
        assert each[1].gradient_norm == pytest.approx(each[0].gradient_norm, rel=1e-2)
    after, weights = values(exact.model), values(given.model)
    if "optimizer" in changes:  # a GPU multiplies Muon's matrices in bf16: 4 %, simulated on a CPU
        apart, moved = (norm_of(each, after) for each in (weights, before))
        assert apart <= 0.1 * moved
    else:
        after = {name: value.float() for name, value in after.items()}
        assert_close(weights, after, rtol=0, atol=1e-5)


@pytest.fixture
def trained(tiny_run, tmp_path):
    """`trained("run", device, 6)`: weights and moments after update 6; a run is resumed."""
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
        assert train(TrainingJob(recipe, tiny_run.data.path, out, str(device)), quiet=True) == 0
        saved = out / f"checkpoint_{updates}"
        moments = checkpoint.read_tensors(saved / checkpoint.OPTIMIZER)
        return moments | checkpoint.read_tensors(saved / checkpoint.MODEL)

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
    share, scale = make_share(device), 2.0**33
    exact = step_of(make_model(), device).update(share, 1, 0.01)
    step = step_of(make_model(), device, "fp16")
    step.passes.scaler = torch.amp.GradScaler(device.type, init_scale=scale)
    before = values(step.model)
    while (result := step.update(share, 1, 0.01)).skipped:
        scale /= 2
        assert (result.scale, result.is_bad) == (scale, False)
        assert all(torch.equal(value, before[name]) for name, value in values(step.model).items())
    assert scale < 2**33 and result.loss == pytest.approx(exact.loss, rel=2e-3)
    assert result.gradient_norm == pytest.approx(exact.gradient_norm, rel=1e-2)


@contextmanager
def little_memory(step, share, peak):
    """Two thirds of what reached `peak` bytes; on a CPU an error where that would not do."""
    device, cuda = step.device, torch.cuda
    if device.type == "cpu":
        Memory(step.model, share.batches[0][1].source.numel() * 2 // 3)
        yield
        return
    cuda.empty_cache()
    held, total = cuda.memory_reserved(device), cuda.get_device_properties(device).total_memory
    cuda.set_per_process_memory_fraction((held + (peak - held) * 2 // 3) / total, device)
    yield
    cuda.set_per_process_memory_fraction(1.0, device)


def test_an_update_out_of_memory_is_divided_and_the_same(device, make_model, make_share):
    whole, short = (step_of(make_model(width=256), device) for _ in range(2))
    share = make_share(device, batches={})
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    expected = whole.update(share, 1, 0.01)
    with little_memory(short, share, torch.cuda.max_memory_allocated()):
        result = short.update(share, 1, 0.01)
    assert 0 < result.max_tokens == short.limit.tokens < share.batches[0][1].source.numel()
    assert result.loss == pytest.approx(expected.loss, rel=1e-5)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-5)


def test_memory_that_runs_out_while_graphs_are_recorded(device, make_model, make_share):
    whole, short = (step_of(make_model(width=256), device) for _ in range(2))
    share = make_share(device, batches={})
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    short.update(share, 1, 0.01)
    with little_memory(short, share, torch.cuda.max_memory_allocated()):
        result = short.update(share, 2, 0.01)
    assert result.unrecorded or device.type == "cpu"
    for number in (1, 2):
        whole.update(share, number, 0.01)
    assert_close(values(short.model), values(whole.model), rtol=0, atol=1e-5)


def test_an_update_is_launched_without_waiting(device, make_model, make_share):
    if device.type == "cpu":
        pytest.skip("only a GPU is waited for")
    step, share = step_of(make_model(), device, "bf16"), make_share(device)
    for number in (1, 2, 3):  # creates moments and tables, then records
        step.update(share, number, 0.01)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step.apply(step.forward_backward(share, 4), 0.01)
    torch.cuda.set_sync_debug_mode("default")
    waits = [each for each in caught if "synchronizing" in str(each.message)]
    assert [Path(each.filename).name for each in waits] == []


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_updates_twice_give_the_same_bytes(precision, device, make_model, make_share):
    def weights():
        step = step_of(make_model(dropout=0.1), device, precision)
        for update in range(1, 6):
            step.update(share, update, 1e-3)
        return values(step.model).values()

    share = make_share(device)
    torch.use_deterministic_algorithms(True)  # as in docs/reliability.md
    first, second = weights(), weights()
    torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, first, second))
