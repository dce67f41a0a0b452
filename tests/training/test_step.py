"""One update: the gradient of the whole, however its sentences are spread over batches."""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.text.vocabulary import EOS
from nmtdeep.training.loss import batch_loss
from nmtdeep.training.step import Step, seed_for
from training.tiny import equal, values

BETA = 0.9
# Large, so that a gradient that is zero by nature (of the key biases) stays small as a step.
EPSILON = 1e-3
SMOOTHING = 0.1
GENERATOR = torch.Generator().manual_seed(7)
PAIRS = [
    tuple(
        [*torch.randint(3, 20, (length,), generator=GENERATOR).tolist(), EOS]
        for length in (source, target)
    )
    for source, target in ((1, 9), (5, 2), (3, 3), (8, 1), (2, 7), (4, 4), (6, 5), (1, 1))
]
TOKENS = sum(len(target) for _, target in PAIRS)


@pytest.fixture
def batches(make_batch):
    """The eight sentences in batches of `size`."""

    def spread(size):
        parts = [PAIRS[first : first + size] for first in range(0, len(PAIRS), size)]
        return [make_batch(*(list(side) for side in zip(*part, strict=True))) for part in parts]

    return spread


def settings(**changes):
    return Training.model_validate({"label_smoothing": SMOOTHING, **changes})


def one_update(model, batches, *, update=1, lr=0.01, weight_decay=0.0, scaler=None, **changes):
    """One update from scratch, and the gradient it used: Adam's first moment over 1 - beta."""
    optimizer = {"type": "adam", "weight_decay": weight_decay, "epsilon": EPSILON}
    step = Step(model, settings(optimizer=optimizer, **changes))
    step.passes.scaler = scaler or step.passes.scaler
    result = step.update(RankBatches.single(batches), update, lr)
    state = step.optimizer.state
    gradients = {
        name: state[parameter]["exp_avg"] / (1 - BETA)
        for name, parameter in model.named_parameters()
        if parameter in state
    }
    return result, gradients


def full_gradient(model, tokens=TOKENS):
    """Sentence by sentence without padding, a dense matrix of targets, one division."""
    total = torch.zeros((), dtype=torch.float64)
    for source, target in PAIRS:
        hidden = model(torch.tensor([source]), torch.tensor([[EOS, *target[:-1]]]))
        log_probs = model.output(hidden)[0].log_softmax(dim=1)
        types = log_probs.shape[1]
        q = torch.full_like(log_probs, SMOOTHING / (types - 1))
        for place, id_ in enumerate(target):
            q[place, id_] = 1 - SMOOTHING
        total = total - (q * log_probs).sum()
    names = [name for name, _ in model.named_parameters()]
    gradients = torch.autograd.grad(total / tokens, list(model.parameters()))
    return dict(zip(names, gradients, strict=True))


@pytest.mark.parametrize("size", [8, 4, 2, 3, 1])
def test_gradient_and_step_equal_those_of_all_sentences_together(size, tiny_model, batches):
    model = tiny_model(sharing="decoder", bias=True)
    before, expected = values(model), full_gradient(model)
    result, gradients = one_update(model, batches(size))
    assert_close(gradients, expected, rtol=0, atol=1e-13)
    norm = math.sqrt(sum(float(part.square().sum()) for part in expected.values()))
    assert result.gradient_norm == pytest.approx(norm, rel=1e-12)
    # The first step of Adam: both moments, bias-corrected, are those of the gradient itself.
    by_hand = {
        name: value - 0.01 * expected[name] / (expected[name].abs() + EPSILON)
        for name, value in before.items()
    }
    assert_close(values(model), by_hand, rtol=0, atol=1e-12)
    whole = tiny_model(sharing="decoder", bias=True)
    one_update(whole, batches(8))
    assert_close(values(model), values(whole), rtol=0, atol=1e-12)


def test_sums_are_over_all_batches(tiny_model, batches):
    model = tiny_model()
    loss = batch_loss(model, batches(8)[0], smoothing=SMOOTHING, dtype=torch.float32)
    result, _ = one_update(model, batches(3))
    assert result.loss == pytest.approx(float(loss.smoothed.detach()), rel=1e-12)
    assert result.nll == pytest.approx(float(loss.nll), rel=1e-12)
    assert result.target_tokens == TOKENS == 40
    assert result.real_tokens == TOKENS + sum(len(source) for source, _ in PAIRS)
    # Longest source and target of sentences 1-3, 4-6 and 7-8, times their number.
    assert result.padded_tokens == 3 * (6 + 10) + 3 * (9 + 8) + 2 * (7 + 6)
    assert not result.skipped


def test_weight_decay_is_decoupled(tiny_model, batches):
    model, plain = tiny_model(), tiny_model()
    before = values(model)
    one_update(model, batches(8), weight_decay=0.5, lr=0.01)
    one_update(plain, batches(8), weight_decay=0.0, lr=0.01)
    expected = {name: value - 0.01 * 0.5 * before[name] for name, value in values(plain).items()}
    assert_close(values(model), expected, rtol=0, atol=1e-12)


def test_clipping_scales_the_whole_gradient(tiny_model, batches):
    model = tiny_model()
    expected = full_gradient(model)
    free, untouched = one_update(tiny_model(), batches(4), clip_norm=1e9)
    result, gradients = one_update(model, batches(4), clip_norm=free.gradient_norm / 3)
    assert result.gradient_norm == pytest.approx(free.gradient_norm)
    scaled = {name: value / 3 for name, value in expected.items()}
    assert_close(gradients, scaled, rtol=1e-5, atol=1e-12)
    assert_close(untouched, expected, rtol=0, atol=1e-13)


# Randomness


def test_seeds_are_all_different():
    grid = [(seed, update, batch) for seed in range(4) for update in range(4) for batch in range(4)]
    assert len({seed_for(*place) for place in grid}) == len(grid)
    assert all(0 <= seed_for(*place) < 2**63 for place in grid)


def test_a_batch_draws_the_same_wherever_it_is_computed(tiny_model, batches):
    model = tiny_model(dropout=0.3).train()
    expected = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for number, batch in reversed(list(enumerate(batches(3)))):
        torch.manual_seed(seed_for(1, 9, number))
        loss = batch_loss(model, batch, smoothing=SMOOTHING, dtype=torch.float32).smoothed
        parts = torch.autograd.grad(loss / TOKENS, list(model.parameters()))
        expected = [total + part for total, part in zip(expected, parts, strict=True)]
    _, gradients = one_update(model, batches(3), update=9, seed=1)
    assert_close(list(gradients.values()), expected, rtol=0, atol=1e-13)


# Numbers that are not finite


# 1e25 is finite in fp32, but its square (in the norm and in Adam's second moment) is not.
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e25])
def test_updates_that_are_not_finite_change_nothing(bad, tiny_model, batches):
    model = tiny_model(dtype=torch.float32)
    before = values(model)
    parameter = model.get_parameter("decoder.layers.1.sublayers.1.norm.bias")
    parameter.register_hook(lambda gradient: gradient * bad)
    result, moments = one_update(model, batches(4), clip_norm=1.0)
    assert result.skipped and result.is_bad
    assert all(not moment.any() for moment in moments.values())
    assert equal(values(model), before)


def test_a_batch_without_targets_adds_nothing(tiny_model, batches):
    full = batches(4)[0]
    empty = replace(full, target_output=torch.zeros_like(full.target_output), target_tokens=0)
    model = tiny_model()
    result, gradients = one_update(model, [*batches(4), empty])
    assert_close(gradients, full_gradient(tiny_model()), rtol=0, atol=1e-13)
    result, gradients = one_update(model, [empty])
    assert (result.loss, result.gradient_norm, result.skipped) == (0.0, 0.0, False)
    assert all(not gradient.any() for gradient in gradients.values())


def test_a_scaled_overflow_is_skipped_and_halves_the_scale(tiny_model, batches):
    model = tiny_model(dtype=torch.float32)
    before, exact = values(model), full_gradient(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    hook = model.encoder.norm.weight.register_hook(lambda gradient: gradient * math.inf)
    result, _ = one_update(model, batches(4), scaler=scaler)
    assert result.skipped and not result.is_bad
    assert result.scale == scaler.get_scale() == 512.0
    assert equal(values(model), before)
    hook.remove()
    result, gradients = one_update(model, batches(4), scaler=scaler)
    assert not result.skipped
    assert_close(gradients, exact, rtol=0, atol=1e-5, check_dtype=False)
