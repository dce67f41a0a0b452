"""The checks for packages: each finds a variant that breaks its promise, and passes a whole one."""

import pytest
from installed import installed

from nmtdeep import testing
from nmtdeep.errors import UserError

CODE = '''
from typing import Literal
import torch
from torch import nn
from nmtdeep.variants import Bridge, BridgeVariant, Combination, CombinationVariant, GrowthVariant

def variant(name, read, parameters=0):
    """A plain stack whose `read` is another."""
    class Broken(Combination):
        calls = 0
        def __init__(self, weight, listed):
            super().__init__()
            if weight:
                self.weight = nn.Parameter(torch.empty(3))
            self.listed = listed
        def init_constants(self):
            if self.listed:
                yield self.weight, torch.ones(3)
        def inherit(self, old, sources): self.load_state_dict(old.state_dict())
        def start(self, x): return x
        def add(self, history, output): return output
        def read(self, history): return read(self, history)
    class Section(CombinationVariant):
        type: Literal[f"broken.{name}"] = f"broken.{name}"
        def build(self, model, stack): return Broken(parameters > 0, parameters > 1)
    return Section

def counting(self, x):
    self.calls += self.training
    return x * (1 + self.calls / 100)

positions = variant("positions", lambda self, x: x * (1 + torch.arange(x.shape[1]) % 2)[:, None])
lengths = variant("lengths", lambda self, x: x * x.shape[0])
padding = variant("padding", lambda self, x: x + 0.1 * x.mean(dim=1, keepdim=True))
future = variant("future", lambda self, x: x + 0.1 * x.flip(1))
unset = variant("unset", lambda self, x: x * self.weight[0], 1)
unused = variant("unused", lambda self, x: x, 2)
rough = variant("rough", lambda self, x: 1000 * (x @ torch.eye(16, dtype=x.dtype) - 0.999 * x))
calls = variant("calls", counting)
whole = variant("whole", lambda self, x: x * self.weight.sum() / 3, 2)

def growing(name, inherit):
    """A plain stack with a vector for each layer and a scale, whose `inherit` is another."""
    class Scaled(Combination):
        def __init__(self, depth):
            super().__init__()
            self.scale = nn.Parameter(torch.empty(1))
            self.weight = nn.Parameter(torch.empty(depth))
        def init_constants(self):
            yield self.scale, torch.ones(1)
            yield self.weight, torch.ones(len(self.weight))
        def start(self, x): return x, 0
        def add(self, history, output): return output, history[1] + 1
        def read(self, history):
            x, layers = history
            return x * self.scale if not layers else x * self.weight[layers - 1]
    Scaled.inherit = inherit
    class Section(CombinationVariant):
        type: Literal[f"broken.{name}"] = f"broken.{name}"
        def build(self, model, stack): return Scaled(stack.depth)
    return Section

def all_of_it(self, old, sources):
    self.scale.copy_(old.scale)
    of_layers(self, old, sources)

def of_layers(self, old, sources):
    for layer, source in enumerate(sources):
        self.weight[layer] = old.weight[source]

keeping = growing("keeping", all_of_it)
forgetting = growing("forgetting", lambda self, old, sources: None)
halving = growing("halving", of_layers)

class Bridging(BridgeVariant):
    type: Literal["broken.bridging"] = "broken.bridging"
    def build(self, model): return Factor(model.decoder.depth)

class Factor(Bridge):
    def __init__(self, depth):
        super().__init__()
        self.depth, self.factor = depth, nn.Parameter(torch.empty(1))
    def init_constants(self):
        yield self.factor, torch.ones(1)
    def forward(self, top, outputs): return [self.factor * top] * self.depth

class Reversed(GrowthVariant):
    type: Literal["broken.reversed"] = "broken.reversed"
    def layer_map(self, old, new): return [old - 1 - layer % old for layer in range(new)]
'''
PLAIN = ("positions", "lengths", "padding", "future", "unset", "unused", "rough", "calls", "whole")
GROWING = ("keeping", "forgetting", "halving")
OTHERS = {"reversed": "Reversed", "bridging": "Bridging"}
CLASSES = {name: name for name in (*PLAIN, *GROWING)} | OTHERS
NAMES = {f"broken.{name}": each for name, each in CLASSES.items()}
# What breaks each promise, and what the check says then.
BROKEN = {
    testing.stepwise_equals_parallel: ("positions", "not close"),
    testing.batched_equals_alone: ("lengths", "not close"),
    testing.padding_is_not_read: ("padding", "not close"),
    testing.future_is_not_read: ("future", "not close"),
    testing.parameters_are_initialized: (
        "unset",
        "^package broken: no initializer covers",
    ),
    testing.parameters_are_trained: ("unused", "combination.weight has no gradient"),
    testing.grown_model_is_whole: ("reversed", "layer 1 of the encoder is not the old one"),
    testing.bf16_is_close: ("rough", "bf16 is far from fp32"),
    testing.training_resumes_exactly: ("calls", "differs after resuming"),
}


@pytest.fixture(autouse=True)
def broken(tmp_path, monkeypatch):
    yield from installed("broken", CODE, NAMES, tmp_path / "site", monkeypatch)


def overrides(name: str) -> list[str]:
    if name == "reversed":
        return [f"training.growth.strategy=broken.{name}"]
    return [f"model.{side}.combination=broken.{name}" for side in ("encoder", "decoder")]


@pytest.mark.parametrize("check", testing.CHECKS)
def test_a_check_finds_what_it_is_for(check, tmp_path):
    name, message = BROKEN[check]
    with pytest.raises((AssertionError, UserError), match=message):
        check(overrides(name), tmp_path)


# That training_resumes_exactly passes is seen in test_extending_page.py.
QUICK = [check for check in testing.CHECKS if check is not testing.training_resumes_exactly]


@pytest.mark.parametrize("check", QUICK)
def test_a_check_passes_what_keeps_its_promise(check, tmp_path):
    check(overrides("whole"), tmp_path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("forgetting", "encoder.combination has inherited nothing"),
        ("halving", "a model as deep as before does not inherit all"),
        ("bridging", "bridge has inherited nothing"),
    ],
)
def test_what_forgets_its_weights_when_it_grows_is_found(name, message, tmp_path):
    changed = ["model.bridge=broken.bridging"] if name == "bridging" else overrides(name)
    with pytest.raises(AssertionError, match=message):
        testing.grown_model_is_whole(changed, tmp_path)


@pytest.mark.parametrize("strategy", ["copy_top_group", "interpolate"])
def test_what_keeps_its_weights_passes_with_every_strategy(strategy, tmp_path):
    grown = f"training.growth.strategy={strategy}"
    for changed in (overrides("keeping"), ["model.bridge=transparent"]):
        testing.grown_model_is_whole([*changed, grown], tmp_path)
