"""The benchmark's naive loop computes the same function as nmtdeep."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nmtdeep.config.recipe import Recipe
from nmtdeep.data.batching import Batch, pad
from nmtdeep.model.transformer import Transformer
from nmtdeep.text.vocabulary import EOS

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "multi30k-en-de.yaml"
NAIVE = ("naive, SDPA", "naive, tuned")
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


def small(contenders: ModuleType, norm: str | None = None) -> tuple[Recipe, Transformer]:
    shape = contenders.naive.Shape.parse("8/12/2/2+1")
    recipe = contenders.adapt(RECIPE, shape, tokens=64, norm=norm)
    return recipe, contenders.build_ours(recipe, TYPES).double()


@pytest.mark.parametrize("norm", ["pre_norm", "post_norm"])
def test_naive_loss_and_gradients_equal_ours(contenders: ModuleType, norm: str) -> None:
    recipe, model = small(contenders, norm)
    assert recipe.model.encoder.residual.type == norm
    peers = {name: contenders.PEERS[name] for name in NAIVE}
    assert contenders.largest_difference(recipe, model, batch(), peers) < 1e-12


def test_the_comparison_would_notice_another_function(contenders: ModuleType) -> None:
    def unmasked(q, k, v, mask, causal):
        return contenders.naive.written_out(q, k, v, None, causal)

    recipe, model = small(contenders)
    build = partial(contenders.build_naive, kernel=unmasked)
    peers = {"without padding mask": contenders.Peer(build, contenders.plain)}
    assert contenders.largest_difference(recipe, model, batch(), peers) > 1e-4
