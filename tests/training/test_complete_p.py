"""CompleteP: branches, and the groups of Adam by the rules of depth of the paper's Table 1."""

import pytest
import torch
from pydantic import ValidationError
from torch.testing import assert_close

from nmtdeep.config.optimizer import Adam
from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.training.optimizer import make_optimizer
from nmtdeep.training.step import Step

LR, EPSILON, BASE = 0.01, 1e-3, 2


def residual(alpha=1.0):
    return {"type": "complete_p", "base_depth": BASE, "alpha": alpha}


@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_a_stack_scales_each_branch_by_its_own_depth(alpha, tiny_model):
    model = tiny_model(encoder=residual(alpha), decoder="pre_norm", depth=6)
    plain = tiny_model(depth=6)
    source, target = torch.tensor([[5, 6, 7, 1]]), torch.tensor([[1, 9, 8]])
    assert not torch.allclose(model(source, target), plain(source, target), atol=1e-3)
    with torch.no_grad():  # the last map of each branch, divided by (6 / 2)^alpha
        for attention, feed_forward in plain.encoder:
            for last in (attention.sublayer.output, feed_forward.sublayer.outer):
                last.weight.div_(3**alpha)
                last.bias.div_(3**alpha)
    assert_close(model(source, target), plain(source, target), rtol=0, atol=1e-12)


# By hand: m = 8 / 2; a row for each group of the table: rate, epsilon.
@pytest.mark.parametrize(
    ("alpha", "hidden"),
    [(1.0, (1.0, EPSILON / 4)), (0.5, (0.5, EPSILON / 2)), (0.75, (4**-0.25, EPSILON * 4**-0.75))],
)
def test_rates_and_epsilons_are_those_of_the_table(alpha, hidden, tiny_model):
    model = tiny_model(encoder=residual(alpha), decoder=residual(alpha), depth=8)
    optimizer = make_optimizer(model, Adam(epsilon=EPSILON, weight_decay=0.1))
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {
        names[parameter]: (group.get("rate", 1.0), group["eps"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert found.keys() == set(names.values())
    for name, factors in found.items():
        # Matrices, biases and norms of layers alike; not embeddings, output and top norms.
        expected = hidden if ".layers." in name else (1.0, EPSILON)
        assert factors == pytest.approx((*expected, 0.1)), name


def test_each_stack_has_its_own_depth_and_the_base_depth_changes_nothing(tiny_model):
    model = tiny_model(encoder=residual(), decoder="pre_norm", depth=4)
    groups = make_optimizer(model, Adam(epsilon=EPSILON)).param_groups
    assert [group["eps"] for group in groups] == [EPSILON / 2, EPSILON]
    assert set(groups[0]["params"]) == set(model.encoder.layers.parameters())
    at_base = tiny_model(encoder=residual(), decoder=residual(), depth=BASE)
    wrappers = [wrapper for layer in (*at_base.encoder, *at_base.decoder) for wrapper in layer]
    assert {(wrapper.scale, wrapper.rate) for wrapper in wrappers} == {(1.0, 1.0)}


def test_a_step_moves_layers_by_their_own_rate(tiny_model, make_batch):
    model = tiny_model(encoder=residual(0.5), decoder=residual(0.5), depth=8)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = {"type": "adam", "epsilon": EPSILON}
    step = Step(model, Training.model_validate({"optimizer": optimizer}))
    step.update(RankBatches.single([make_batch([[5, 6, 7, 1]], [[9, 8, 1]])]), 1, LR)
    for name, parameter in model.named_parameters():
        gradient = step.optimizer.state[parameter]["exp_avg"] / 0.1
        rate, epsilon = (0.5, EPSILON / 2) if ".layers." in name else (1.0, EPSILON)
        expected = before[name] - LR * rate * gradient / (gradient.abs() + epsilon)
        assert_close(parameter.detach(), expected, rtol=0, atol=1e-12)


def test_the_table_is_one_of_adam():
    described = {"model": {"encoder": {"residual": "complete_p"}}}
    Recipe.model_validate(described)
    with pytest.raises(ValidationError, match="complete_p sets rates of Adam, not of muon"):
        Recipe.model_validate(described | {"training": {"optimizer": "muon"}})
