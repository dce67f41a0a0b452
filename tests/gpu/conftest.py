"""The device under test, models that two devices can agree on, and sentences for them."""

import os

import numpy as np
import pytest
import torch
from torch import nn

from nmtdeep.data.batching import Share
from nmtdeep.devices import resolve_device
from nmtdeep.text.vocabulary import EOS

# Without it, cuBLAS may add in another order each time; it is read once, when cuBLAS starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
TYPES = 200


@pytest.fixture(scope="module")
def device():
    name = os.environ.get("NMTDEEP_TEST_DEVICE", "cuda")
    if name != "cpu" and not torch.cuda.is_available():
        pytest.skip("needs a GPU; NMTDEEP_TEST_DEVICE=cpu checks the test itself")
    # Compiling would take most of the time; one test undoes this.
    with torch.compiler.set_stance("force_eager"):
        yield resolve_device(name)


@pytest.fixture
def make_model(tiny_model):
    """A model on the CPU: small weights, ReLUs far from zero, where a rounding would decide."""

    def make(dtype=torch.float32, width=64, **choices):
        model = tiny_model(seed=1, width=width, feed_forward=2 * width, types=TYPES, **choices)
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


@pytest.fixture(scope="session")
def make_share(make_batch):
    """`make_share(device, 8, 5)`: an update of 8 and 5 random pairs of up to `longest` tokens."""

    def make(device, *counts, longest=19):
        random = np.random.default_rng(3)

        def sentences(count):
            lengths = random.integers(1, longest, count)
            return [[*random.integers(3, TYPES, length).tolist(), EOS] for length in lengths]

        return Share.whole([make_batch(sentences(n), sentences(n)).to(device) for n in counts])

    return make
