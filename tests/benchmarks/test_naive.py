"""The benchmark's naive loop computes the same function as nmtdeep."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from nmtdeep.data.batching import Batch, pad
from nmtdeep.text.vocabulary import EOS

ROOT = Path(__file__).parents[2]
TYPES = 24


@pytest.fixture
def contenders(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("contenders")


def batch() -> Batch:
    """Three sentence pairs of different lengths, padded on both sides."""
    random = np.random.default_rng(5)
    sides = [[5, 3, 4], [2, 6, 4]]
    sources, targets = (
        [np.append(random.integers(3, TYPES, length), EOS) for length in side] for side in sides
    )
    inputs = [np.concatenate(([EOS], target[:-1])) for target in targets]
    tokens = sum(map(len, targets))
    return Batch(pad(sources), pad(inputs), pad(targets), tokens, 39, tokens + 15)


@pytest.mark.parametrize("norm", ["pre_norm", "post_norm"])
def test_naive_loss_and_gradients_equal_ours(contenders: ModuleType, norm: str) -> None:
    shape = contenders.naive.Shape.parse("8/12/2/2+1")
    path = ROOT / "recipes" / "multi30k-en-de.yaml"
    recipe = contenders.adapt(path, shape, tokens=64, norm=norm)
    assert recipe.model.encoder.residual.type == norm
    assert contenders.largest_difference(recipe, TYPES, batch(), dtype=torch.float64) < 1e-12


def test_the_comparison_would_notice_another_function(
    contenders: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = contenders.naive.Shape.parse("8/12/2/1+1")
    recipe = contenders.adapt(ROOT / "recipes" / "multi30k-en-de.yaml", shape, tokens=64)

    def unmasked(q, k, v, mask, causal):
        return contenders.naive.written_out(q, k, v, None, causal)

    monkeypatch.setattr(contenders, "KERNELS", {"without padding mask": unmasked})
    assert contenders.largest_difference(recipe, TYPES, batch(), dtype=torch.float64) > 1e-4


def test_products_count_every_weight_once(contenders: ModuleType) -> None:
    shape = contenders.naive.Shape.parse("8/12/2/2+1")
    recipe = contenders.adapt(ROOT / "recipes" / "multi30k-en-de.yaml", shape, tokens=64)
    model = contenders.build_ours(recipe, TYPES)
    floor = importlib.import_module("floor")
    work = floor.Work(corpus=None, plan=[], source=1, target=1, target_tokens=1, real_tokens=3)
    matrices = sum(value.numel() for value in model.parameters() if value.dim() == 2)
    flops = sum(product.flops for product in floor.products(model, work))
    assert flops == 6 * matrices
