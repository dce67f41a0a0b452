"""The checks for packages: each finds a variant that breaks its promise, and passes a whole one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmtdeep import testing

CODE = '''
from typing import Literal
import torch
from torch import nn
from nmtdeep.variants import Combination, CombinationVariant, GrowthVariant

def variant(name, read, parameters=0):
    """A plain stack whose `read` is another."""
    class Broken(Combination):
        calls = 0
        def __init__(self, weight, listed):
            super().__init__()
            if weight:
                self.weight = nn.Parameter(torch.empty(3))
            self.listed = listed
        def constants(self):
            if self.listed:
                yield self.weight, torch.ones(3)
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

class Reversed(GrowthVariant):
    type: Literal["broken.reversed"] = "broken.reversed"
    def layer_map(self, old, new): return [old - 1 - layer % old for layer in range(new)]
'''
NAMES = ("positions", "lengths", "padding", "future", "unset", "unused", "rough", "calls", "whole")
# What breaks each promise, and what the check says then.
BROKEN = {
    testing.stepwise_equals_parallel: ("positions", "not close"),
    testing.batched_equals_alone: ("lengths", "not close"),
    testing.padding_is_not_read: ("padding", "not close"),
    testing.future_is_not_read: ("future", "not close"),
    testing.parameters_are_initialized: ("unset", "no initializer covers .*combination.weight"),
    testing.parameters_are_trained: ("unused", "combination.weight has no gradient"),
    testing.grown_model_is_whole: ("reversed", "layer 1 of the encoder is not the old one"),
    testing.bf16_is_close: ("rough", "bf16 is far from fp32"),
    testing.training_resumes_exactly: ("calls", "differs after resuming"),
}


@pytest.fixture(autouse=True)
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    site = tmp_path / "site"
    (site / "broken-1.dist-info").mkdir(parents=True)
    (site / "broken.py").write_text(CODE)
    points = "".join(f"broken.{name} = broken:{name}\n" for name in NAMES)
    (site / "broken-1.dist-info" / "METADATA").write_text("Name: broken\nVersion: 1\n")
    (site / "broken-1.dist-info" / "entry_points.txt").write_text(
        f"[nmtdeep.variants]\n{points}broken.reversed = broken:Reversed\n"
    )
    monkeypatch.syspath_prepend(site)
    yield
    sys.modules.pop("broken", None)


def overrides(name: str) -> list[str]:
    if name == "reversed":
        return [f"training.growth.strategy=broken.{name}"]
    return [f"model.{side}.combination=broken.{name}" for side in ("encoder", "decoder")]


@pytest.mark.parametrize("check", testing.CHECKS)
def test_a_check_finds_what_it_is_for(check: testing.Check, tmp_path: Path) -> None:
    name, message = BROKEN[check]
    with pytest.raises((AssertionError, ValueError), match=message):
        check(overrides(name), tmp_path)


@pytest.mark.parametrize("check", testing.CHECKS)
def test_a_check_passes_what_keeps_its_promise(check: testing.Check, tmp_path: Path) -> None:
    check(overrides("whole"), tmp_path)
