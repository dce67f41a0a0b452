"""The device under test, models that two devices can agree on, and sentences for them."""

import os
from contextlib import closing

import pytest
import torch
from torch import nn

from nmtdeep.config.recipe import Recipe
from nmtdeep.devices import resolve_device
from nmtdeep.training.feed import upcoming
from nmtdeep.training.ranks import Ranks
from nmtdeep.training.setup import Setup
from nmtdeep.training.state import Progress

# Without it, cuBLAS may add in another order each time; it is read once, when cuBLAS starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="module")
def device():
    name = os.environ.get("NMTDEEP_TEST_DEVICE", "cuda")
    if name != "cpu" and not torch.cuda.is_available():
        pytest.skip("needs a GPU; NMTDEEP_TEST_DEVICE=cpu checks the test itself")
    # Compiling would take most of the time; one test undoes this.
    with torch.compiler.set_stance("force_eager"):
        yield resolve_device(name)


@pytest.fixture
def make_model(tiny_model, tiny_run):
    """A model on the CPU: small weights, ReLUs far from zero, where a rounding would decide."""

    def make(dtype=torch.float32, width=64, **choices):
        sizes = {"feed_forward": 2 * width, "types": len(tiny_run.pipeline.source.vocabulary)}
        model = tiny_model(seed=1, width=width, **sizes, **choices)
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0  # another device draws other numbers
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    parameter.mul_(0.2)
                if name.endswith("inner.bias"):
                    parameter.copy_(2.5 * parameter.sign())
        return model.to(dtype)

    return make


@pytest.fixture
def make_share(tiny_run, tiny_config, tmp_path):
    """`make_share(device, choice, **training)`: an update of 50 pairs from the training's feed."""

    def make(device, choice=None, **training):
        settings = {"batches": {"group_tokens": 600}, **training}
        described = {**tiny_run.recipe.model_dump(), "training": settings}
        described["model"] = tiny_config(**choice or {}).model_dump()
        ranks, recipe = Ranks(device=device), Recipe.model_validate(described)
        with closing(upcoming(Setup(recipe, tiny_run.data, ranks), Progress())) as feed:
            return next(feed).batches

    return make
