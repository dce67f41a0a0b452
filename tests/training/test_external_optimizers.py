"""Every optimizer of torch as one of another package: it keeps the promises, or it is refused."""

import inspect
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from installed import installed

from nmtdeep import checkpoint
from nmtdeep.config.optimizer import OptimizerVariant
from nmtdeep.config.training import Training
from nmtdeep.config.variant import find_variant
from nmtdeep.data.batch import RankBatches
from nmtdeep.errors import UserError
from nmtdeep.training.state import optimizer_tensors, restore_optimizer
from nmtdeep.training.step import Step

CODE = """
from typing import Any, Literal
import torch
from nmtdeep.variants import OptimizerVariant

class Any_(OptimizerVariant):
    type: Literal["borrowed.any"] = "borrowed.any"
    name: str = "SGD"
    options: dict[str, Any] = {}
    def build(self, transformer):
        parameters = list(transformer.parameters())
        if self.name == "Muon":
            parameters = [each for each in parameters if each.dim() == 2]
        return CLASSES[self.name](parameters, **self.options)

class Counting(torch.optim.SGD):
    def step(self, closure=None):
        for group in self.param_groups:
            group["count"] = group.get("count", 0) + 1
        super().step(closure)

class Integer(torch.optim.SGD):
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["step"] = 1 + self.state[parameter].get("step", 0)
        super().step(closure)

def no_optimizer(parameters):
    return parameters

OWN = {"Counting": Counting, "Integer": Integer, "no_optimizer": no_optimizer}
CLASSES = {**vars(torch.optim), **OWN}
"""
CLASSES = {
    name: each
    for name, each in vars(torch.optim).items()
    if isinstance(each, type) and issubclass(each, torch.optim.Optimizer)
} | {"Optimizer": None}
REFUSED = {
    "LBFGS": "closure",
    "SparseAdam": "dense gradients",
    "Optimizer": "Optimizer",  # the base, without a step
    "Counting": "a step changes its groups",
    "Integer": "other things than tensors",
    "no_optimizer": "AttributeError",
}
# Options that bring more state.
MORE: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adam": {"amsgrad": True},
    "RMSprop": {"momentum": 0.9, "centered": True},
    "Adafactor": {"beta2_decay": -0.5},
}
CASES = [
    (name, options)
    for name, each in CLASSES.items()
    if name not in REFUSED
    for options in (
        {},
        *([MORE[name]] if name in MORE else ()),
        *(
            [{**MORE.get(name, {}), "fused": True}]
            if "fused" in inspect.signature(each).parameters
            else []
        ),
    )
]
SENTENCES = ([[5, 6, 7, 1], [8, 1]], [[9, 8, 1], [4, 4, 7, 1]])
LR = 0.01


@pytest.fixture(autouse=True)
def borrowed(tmp_path, monkeypatch):
    yield from installed("borrowed", CODE, {"borrowed.any": "Any_"}, tmp_path, monkeypatch)


class Run:
    """A model in training, some of whose updates have gradients that are not finite."""

    def __init__(self, model, share, name, options):
        section: Any = find_variant("borrowed.any", OptimizerVariant)
        optimizer = section(name=name, options=options)
        self.step = Step(model, Training().model_copy(update={"optimizer": optimizer}))
        self.share = share

    def update(self, number, *, bad=False):
        table = self.step.model.output.weight
        hook = table.register_hook(lambda gradient: gradient * math.nan) if bad else None
        assert self.step.update(self.share, number, LR).skipped is bad
        if hook:
            hook.remove()

    def tensors(self):
        """Weights and moments, as a checkpoint has them."""
        moments = optimizer_tensors(self.step.model, self.step.optimizer)
        return {
            name: tensor.detach().clone()
            for name, tensor in (checkpoint.weights(self.step.model) | moments).items()
        }

    def moments(self):
        return {name: each for name, each in self.tensors().items() if "/" in name}


def equal(first, second):
    """To the bit: 0.0 is not -0.0."""
    assert first.keys() == second.keys()
    return all(
        first[name].dtype == second[name].dtype
        and first[name].numpy().tobytes() == second[name].numpy().tobytes()
        for name in first
    )


@pytest.fixture
def start(tiny_model, make_batch):
    share = RankBatches.single([make_batch(*SENTENCES)])
    return lambda name, options: Run(tiny_model(dtype=torch.float32), share, name, options)


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
@pytest.mark.parametrize(
    "scaled", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "scaled"]
)
def test_bad_updates_change_nothing_and_training_resumes(name, options, scaled, start):
    hurt, spared, resumed = (start(name, options) for _ in range(3))
    fresh = hurt.tensors()  # Adagrad's state is there from the start
    weights = checkpoint.weights(resumed.step.model).keys()
    if scaled:
        for run in (hurt, spared):
            scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1000)
            run.step.passes.scaler = scaler
    hurt.update(1, bad=True)
    assert equal(hurt.tensors(), fresh)
    for number in (2, 3):
        hurt.update(number)
        spared.update(number)
    before = hurt.tensors()
    assert not all(before[name].equal(fresh[name]) for name in weights)
    hurt.update(4, bad=True)
    assert equal(hurt.tensors(), before)
    assert equal(spared.tensors(), before)
    restored = {name: before[name] for name in weights}
    checkpoint.load_weights(resumed.step.model, restored, Path("the test"))
    restore_optimizer(resumed.step.model, resumed.step.optimizer, hurt.moments())
    if scaled:
        resumed.step.passes.scaler = hurt.step.passes.scaler
    for number in (5, 6):
        spared.update(number)
        resumed.update(number)
    assert equal(spared.tensors(), resumed.tensors())


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_train_is_refused_in_one_line(name, start):
    with pytest.raises(UserError, match=rf"^training.optimizer: .*borrowed 1 .*{REFUSED[name]}"):
        start(name, {})
