"""Two small batches with padding, and a probe of a tiny model."""

import pytest

from nmtdeep.analysis.probe import Probe
from nmtdeep.config.recipe import Recipe

PAIRS = (
    ([[5, 6, 7, 8, 1], [9, 1]], [[4, 5, 1], [6, 7, 8, 9, 1]]),
    ([[3, 4, 1]], [[10, 11, 12, 1]]),
)


@pytest.fixture
def batches(make_batch):
    return [make_batch(*pairs) for pairs in PAIRS]


@pytest.fixture
def make_probe(tiny_model, tiny_config, batches):
    """A probe of a tiny model, float64, random norms and biases, no dropout."""

    def make(**choices: object) -> Probe:
        model = tiny_model(sharing="none", **choices)
        described = Recipe.model_validate({"training": {"label_smoothing": 0.1}})
        recipe = described.model_copy(update={"model": tiny_config(sharing="none", **choices)})
        return Probe(model, batches, recipe)

    return make
