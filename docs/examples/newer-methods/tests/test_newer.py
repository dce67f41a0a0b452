"""Both methods against float64 loops of the releases' formulas, and the promises of their slot."""

import pytest
import torch
from nmtdeep_newer.corrector import Corrector, PredictorLayer
from nmtdeep_newer.dual import DualStreams
from torch import nn
from torch.testing import assert_close

from nmtdeep import testing
from nmtdeep.config.load import load_recipe
from nmtdeep.errors import ConfigError
from nmtdeep.model.build import build

SIDES = ("encoder", "decoder")
DUAL = [
    f"model.{side}.{choice}"
    for side in SIDES
    for choice in ("residual=no_norm", "combination=nmtdeep_newer.resi_dual")
]
CORRECTED = {
    order: [
        f"model.{side}.combination={{type: nmtdeep_newer.predictor_corrector, order: {order}}}"
        for side in SIDES
    ]
    for order in (2, 4)
}


@pytest.mark.parametrize("check", testing.CHECKS)
@pytest.mark.parametrize("overrides", [DUAL, CORRECTED[2]], ids=["resi_dual", "pcformer"])
def test_promise(check, overrides, tmp_path):
    check(overrides, tmp_path)


def test_order_4_decodes_as_it_trains(tmp_path):
    testing.stepwise_equals_parallel(CORRECTED[4], tmp_path)


class Map(nn.Module):
    """A sublayer in its residual wrapper, x + tanh(W x)."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width, dtype=torch.float64))

    def forward(self, x, context, state=None):
        return x + (x @ self.weight.T).tanh()


def norms(count, width, epsilon=1e-5):
    """Layer norms with gains and biases that are not those of the start."""
    made = [nn.LayerNorm(width, eps=epsilon, dtype=torch.float64) for _ in range(count)]
    for norm in made:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    return made


def normed(x, norm):
    """The formula of a layer norm, one position after the other."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]):
        mean = sum(row) / len(row)
        variance = sum((each - mean) ** 2 for each in row) / len(row)
        rows.append((row - mean) / (variance + norm.eps).sqrt() * norm.weight + norm.bias)
    return torch.stack(rows).view(x.shape)


def test_resi_dual_is_the_loop_of_its_release():
    torch.manual_seed(1)
    x, outputs = torch.randn(2, 3, 4).double(), torch.randn(5, 2, 3, 4).double()
    (top,), below = norms(1, 4, 1e-7), norms(5, 4)
    dual = DualStreams(below, top, scale=0.5, alpha=0.25)

    history, reads = dual.start(x), []
    for output in outputs:
        reads.append(dual.read(history))
        history = dual.add(history, output)

    post, pre = x, 0.5 * x
    for read, output, norm in zip(reads, outputs, below, strict=True):
        assert_close(read, post, rtol=0, atol=1e-12)
        pre = pre + 0.5 * output
        post = normed(post + output, norm)
    assert_close(dual.read(history), 0.25 * post + normed(pre, top), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [2, 4])
def test_pcformer_is_the_loop_of_its_release(order):
    torch.manual_seed(1)
    depth, width = 3, 4
    layers = [PredictorLayer([Map(width), Map(width)], order=order).double() for _ in range(depth)]
    corrector = Corrector(norms(depth, width), norms(depth, width)).double()
    for parameter in (corrector.before, corrector.after, *(layer.alpha for layer in layers)):
        nn.init.uniform_(parameter)
    x = torch.randn(2, 3, width).double()

    history = corrector.start(x)
    for layer in layers:
        for branch in range(layer.branches):
            read = corrector.read(history)
            history = corrector.add(history, layer(read, None, branch=branch))

    entries, expected = [x], x
    for number, layer in enumerate(layers):
        first, second = (wrapper.weight for wrapper in layer)

        def whole(y, first=first, second=second):
            y = y + (y @ first.T).tanh()
            return y + (y @ second.T).tanh()

        y, a = expected, layer.alpha
        f1 = whole(y)
        if order == 2:
            f2 = whole(y + f1)
            guess = y + a * (1 - a) * f1 + a * f2
        else:
            f2 = whole(y + f1 / 2)
            f3 = whole(y + f2 / 2)
            f4 = whole(y + f3)
            guess = y + a * (1 - a) ** 3 * f1 + a * (1 - a) ** 2 * f2 + a * (1 - a) * f3 + a * f4
        entries.append(normed(guess, corrector.predicted[number]))
        corrected = sum(corrector.before[number, k] * entry for k, entry in enumerate(entries))
        entries[-1] = normed(whole(corrected), corrector.corrected[number])
        expected = sum(corrector.after[number, k] * entry for k, entry in enumerate(entries))
    assert_close(corrector.read(history), expected, rtol=0, atol=1e-12)


def test_the_start_values_of_the_releases():
    corrector = Corrector(norms(2, 4), norms(2, 4))
    for _, start in corrector.init_constants():
        assert_close(start, torch.tensor([[1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]))
    ((_, alpha),) = PredictorLayer([], order=2).init_constants()
    assert alpha == 0.5


def test_a_grown_corrector_reads_what_it_read():
    """Layers 1 and 2 are the first copies; layer 3 is new, and starts as an average."""
    old = Corrector(norms(2, 4), norms(2, 4)).double()
    new = Corrector(norms(3, 4), norms(3, 4)).double()
    with torch.no_grad():
        for parameter, start in new.init_constants():
            parameter.copy_(start)
        old.before.copy_(torch.tensor([[1, 2, 9], [3, 4, 5]]))
        old.after.copy_(torch.tensor([[6, 7, 9], [8, 1, 2]]))
        new.inherit(old, [0, None, 1])
    third = 1 / 3
    assert_close(new.before, torch.tensor([[1, 2, 0, 0], [third] * 3 + [0], [3, 4, 0, 5]]).double())
    assert_close(new.after, torch.tensor([[6, 7, 0, 0], [third] * 3 + [0], [8, 1, 0, 2]]).double())
    assert new.corrected[2].weight.equal(old.corrected[1].weight)


@pytest.mark.parametrize("overrides", [DUAL, CORRECTED[2]], ids=["resi_dual", "pcformer"])
def test_another_residual_is_refused_by_name(overrides):
    recipe = load_recipe("deep-small", [*overrides, "model.encoder.residual=post_norm"])
    with pytest.raises(ConfigError, match=r"has no use for residual: post_norm"):
        build(recipe.model, source_types=9, target_types=9)


@pytest.mark.parametrize("name", ["iwslt14-de-en-resi-dual", "wmt16-en-de-pcformer"])
def test_the_recipes_build(name):
    recipe = load_recipe(f"nmtdeep_newer/{name}")
    assert recipe.reference.paper.endswith(("Connections", "(NeurIPS)"))
    with torch.device("meta"):
        model = build(recipe.model, source_types=100, target_types=100)
    assert len(model.encoder.layers) == len(model.decoder.layers) == 6
