"""Every peer of the benchmarks computes the same function as nmtdeep, and searches alike."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batching import Batch, pad
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
TYPES = 24
Load = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module


def sentences(lengths: list[int], seed: int = 5) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [np.append(random.integers(3, TYPES, length), EOS) for length in lengths]


def batch() -> Batch:
    """Three sentence pairs of different lengths, padded on both sides."""
    sources, targets = sentences([5, 3, 4]), sentences([2, 6, 4], seed=6)
    inputs = [np.concatenate(([EOS], target[:-1])) for target in targets]
    tokens = sum(map(len, targets))
    return Batch(pad(sources), pad(inputs), pad(targets), tokens, 39, tokens + 15)


def small(load: Load, norm: str) -> tuple[Recipe, Transformer]:
    contenders = load("contenders")
    shape = contenders.naive.Shape.parse("8/12/2/2+1")
    recipe = contenders.adapt(RECIPE, shape, tokens=64, norm=norm)
    assert recipe.model.encoder.residual.type == norm
    model = contenders.build_ours(recipe, TYPES).double()
    # Biases and norms start where they would hide a mistake; move everything.
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return recipe, model
