"""Muon: orthogonal matrices by singular values, one step by hand, and Adam's parameters."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

from nmtdeep.config.optimizer import Muon as MuonConfig
from nmtdeep.config.render import dump
from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.training.optimizer import make_optimizer, orthogonalize
from nmtdeep.training.state import optimizer_tensors, restore_optimizer
from nmtdeep.training.step import Step
from training.tiny import recipe_of

MOMENTUM, LR, EPSILON = 0.9, 0.01, 1e-3


def quintic(singular):
    """Jordan et al. 2024: x -> 3.4445 x - 4.7750 x^3 + 2.0315 x^5, five times."""
    for _ in range(5):
        singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
    return singular


def by_singular_values(matrix):
    """The iteration on a matrix: its singular values go through the polynomial."""
    u, singular, vh = torch.linalg.svd(matrix, full_matrices=False)
    return u @ torch.diag(quintic(singular / (singular.square().sum().sqrt() + 1e-7))) @ vh


@pytest.mark.parametrize("shape", [(5, 5), (12, 4), (3, 9), (1, 6)])
def test_orthogonalize_maps_singular_values(shape):
    generator = torch.Generator().manual_seed(3)
    matrices = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    expected = torch.stack([by_singular_values(matrix) for matrix in matrices])
    assert_close(orthogonalize(matrices), expected, rtol=0, atol=1e-9)


def test_orthogonalize_is_nearly_orthogonal_and_ignores_scale():
    matrices = torch.randn(2, 64, 256, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonalize(matrices))
    assert values.min() > 0.65 and values.max() < 1.25
    assert_close(orthogonalize(1e4 * matrices), orthogonalize(matrices), rtol=1e-3, atol=1e-5)
    rough = orthogonalize(matrices, torch.bfloat16)
    assert rough.dtype == torch.float32
    assert 0 < float((rough - orthogonalize(matrices)).norm() / rough.norm()) < 0.05
    assert not orthogonalize(torch.zeros(1, 4, 4)).any()


def maps_of_layers(model):
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and name.startswith(("encoder.layers", "decoder.layers"))
    }


def test_two_steps_equal_the_formula(tiny_model):
    model, adams = tiny_model(), tiny_model()
    settings = MuonConfig(momentum=MOMENTUM, epsilon=EPSILON, weight_decay=0.5)
    optimizer = make_optimizer(model, settings)
    reference = torch.optim.AdamW(
        adams.parameters(), lr=LR, betas=(0.9, 0.98), eps=EPSILON, weight_decay=0.5
    )
    names = set(maps_of_layers(model))
    # Per layer: encoder 2 + 2 maps, decoder 2 + 3 + 2.
    assert len(names) == 4 * len(model.encoder.layers) + 7 * len(model.decoder.layers)
    expected = {name: value.detach().clone() for name, value in maps_of_layers(model).items()}
    momentum = {name: torch.zeros_like(value) for name, value in expected.items()}
    generator = torch.Generator().manual_seed(5)
    for _ in range(2):
        for (name, one), other in zip(model.named_parameters(), adams.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=generator, dtype=one.dtype)
            other.grad = one.grad.clone()
            if name in names:
                momentum[name] = MOMENTUM * momentum[name] + (1 - MOMENTUM) * one.grad
                ahead = MOMENTUM * momentum[name] + (1 - MOMENTUM) * one.grad
                step = 0.2 * max(one.shape) ** 0.5 * by_singular_values(ahead)
                expected[name] = expected[name] - LR * (step + 0.5 * expected[name])
        for group in optimizer.param_groups:
            group["lr"] = LR
        optimizer.step()
        reference.step()
    for (name, one), other in zip(model.named_parameters(), adams.parameters(), strict=True):
        assert_close(one.detach(), expected.get(name, other.detach()), rtol=0, atol=1e-9)


def test_a_bad_update_leaves_every_bit(tiny_model):
    model = tiny_model(dtype=torch.float32)
    optimizer: Any = make_optimizer(model, MuonConfig(weight_decay=0.5))

    def bits():
        states = [each for state in optimizer.state.values() for each in state.values()]
        return [each.detach().numpy().tobytes() for each in (*model.parameters(), *states)]

    def step(gradient):
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
        for group in optimizer.param_groups:
            group["lr"] = LR
        optimizer.found_inf = torch.tensor(float(gradient != 1))
        optimizer.step()

    with torch.no_grad():
        for parameter in model.parameters():
            parameter[..., ::2] = -0.0
    weights = bits()
    step(torch.nan)
    assert bits()[: len(weights)] == weights
    step(1)
    for matrix in optimizer.param_groups[1]["params"]:
        optimizer.state[matrix]["momentum"][0] = -0.0
    before = bits()
    assert before[: len(weights)] != weights
    step(torch.inf)
    assert bits() == before


@pytest.mark.slow
def test_moments_of_units_that_no_longer_learn_become_zero(tiny_run, tmp_path):
    recipe = recipe_of(
        tiny_run,
        max_updates=60,
        optimizer={"type": "adam", "betas": [0.1, 0.98]},  # 0.1^38 is the least number of fp32
        schedule={"type": "inverse_square_root", "lr": 1.0, "warmup_updates": 1},
        batches={"tokens_per_update": 400, "group_tokens": 400},
        validation={"every": 60, "bleu": False, "best_by": "loss"},
    )
    (tmp_path / "recipe.yaml").write_text(dump(recipe), encoding="utf-8")
    words = ["train", "recipe.yaml", "--data", tiny_run.data.path, "--out", "run"]
    command = [sys.executable, "-m", "nmtdeep", *words, "--device", "cpu", "--no-final-scores"]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    moments = load_file(tmp_path / "run" / "checkpoint_last" / "optimizer.safetensors")
    means = [moment for name, moment in moments.items() if "exp_avg/" in name and "inner" in name]
    sizes = torch.cat([mean.abs().flatten() for mean in means])
    assert (sizes == 0).any()
    assert not ((sizes > 0) & (sizes < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.parametrize("kind", ["muon", "adam"])
@pytest.mark.parametrize("saved", ["now", "before"], ids=["", "by a release without state"])
def test_a_run_that_stopped_after_bad_first_updates_resumes(kind, saved, tiny_model, make_batch):
    share = RankBatches.single([make_batch([[5, 6, 7, 1]], [[9, 8, 1]])])
    settings = Training.model_validate({"optimizer": {"type": kind, "weight_decay": 0.1}})
    stopped, resumed, spared = (Step(tiny_model(dtype=torch.float32), settings) for _ in range(3))
    hook = stopped.model.output.weight.register_hook(lambda gradient: gradient * torch.nan)
    assert stopped.update(share, 1, LR).skipped and stopped.update(share, 2, LR).skipped
    hook.remove()
    moments = optimizer_tensors(stopped.model, stopped.optimizer)
    assert moments and not any(each.any() for each in moments.values())
    restore_optimizer(resumed.model, resumed.optimizer, moments if saved == "now" else {})
    for step in (resumed, spared):
        for number in (3, 4):
            step.update(share, number, LR)
    assert all(map(torch.equal, resumed.model.parameters(), spared.model.parameters()))
    assert not all(map(torch.equal, resumed.model.parameters(), stopped.model.parameters()))
