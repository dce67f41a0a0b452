"""Models that cannot be held are refused by what they need at least."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch

from nmtdeep.config import Recipe
from nmtdeep.errors import UserError
from nmtdeep.model.build import build
from nmtdeep.training.size import check_size, check_training_size, least_parameters
from tests.model.choices import COMBINATIONS, label


@pytest.mark.parametrize("choice", COMBINATIONS, ids=label)
def test_the_least_is_less_than_what_is_built_but_not_by_much(tiny_config, choice):
    described = tiny_config(**choice)
    model = build(described, source_types=20, target_types=20)
    built = sum(parameter.numel() for parameter in model.parameters())
    assert built / 3 < least_parameters(described, 20) <= built


def test_the_least_of_a_plain_transformer():
    # Vaswani et al. 2017, base: 44.1M in the layers, 37,000 shared types.
    layers = 6 * (4 * 512**2 + 2 * 512 * 2048) + 6 * (8 * 512**2 + 2 * 512 * 2048)
    assert least_parameters(Recipe().model, 37_000) == layers + 37_000 * 512 == 62_984_192


def data(types: int) -> SimpleNamespace:
    vocabulary = SimpleNamespace(vocabulary=range(types))
    return SimpleNamespace(pipeline=SimpleNamespace(target=vocabulary))


@pytest.mark.parametrize(
    "model",
    [
        {"encoder": {"depth": 10_000}, "width": 4096},
        {"width": 8 * 10**9},
        {"decoder": {"feed_forward": 10**15}},
        {"positions": {"type": "relative", "clip": 10**15}},
    ],
    ids=["layers", "width", "feed_forward", "clip"],
)
def test_a_model_for_no_machine_is_refused_at_once(model):
    recipe = Recipe.model_validate({"model": model})
    start = time.perf_counter()
    with pytest.raises(
        UserError, match=r"takes [\d,.]+ [GT]B .* this machine has \d.*: lower model"
    ):
        check_training_size(recipe, data(100), torch.device("cpu"), 1)
    assert time.perf_counter() - start < 1


def test_an_ordinary_model_is_let_through():
    check_training_size(Recipe(), data(37_000), torch.device("cpu"), 1)


def test_muon_keeps_one_moment_where_adam_keeps_two(monkeypatch):
    kept = 63e6 * 4  # bytes of the weights of Vaswani et al.'s base, about
    for optimizer, enough in (("adam", 4), ("muon", 3)):
        recipe = Recipe.model_validate({"training": {"optimizer": optimizer}})
        monkeypatch.setattr("nmtdeep.training.size._memory", lambda _, n=enough: n * kept)
        check_training_size(recipe, data(37_000), torch.device("cpu"), 1)
        monkeypatch.setattr("nmtdeep.training.size._memory", lambda _, n=enough: (n - 0.1) * kept)
        with pytest.raises(UserError, match="moment"):
            check_training_size(recipe, data(37_000), torch.device("cpu"), 1)


def test_weights_alone_take_a_quarter_of_a_training(monkeypatch):
    monkeypatch.setattr("nmtdeep.training.size._memory", lambda _: 63e6 * 4)
    check_size(Recipe().model, 37_000, torch.device("cpu"))
    with pytest.raises(UserError, match="for weights, and this machine has 252 MB"):
        check_size(Recipe().model, 38_000, torch.device("cpu"))
