"""Loss, gradients and searches of every variant on a GPU equal those of a CPU in float64."""

import pytest
import torch
from model.choices import VARIANTS
from torch.nn.utils.rnn import pad_sequence

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.training import Training
from nmtdeep.decoding.searcher import Searcher, SourceBatch
from nmtdeep.text.vocabulary import EOS, PAD
from nmtdeep.training.setup import PRECISIONS
from nmtdeep.training.step import Step

CPU = torch.device("cpu")
# Norm of the difference over the norm, of all gradients; each alone may differ four times as much.
# Measured on a CPU (2026-11-23): at most 7e-7, 1e-2 and 2e-3.
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 5e-3}
HEADS = {f"heads of {width // 2}": {"width": width} for width in (64, 128, 256)}
CHOICES = VARIANTS | HEADS
CASES = [(name, precision, "force_eager") for name in CHOICES for precision in TOLERANCE]
# Compiling takes minutes for all of them.
CASES += [(name, dtype, "default") for name in list(VARIANTS)[::4] for dtype in ("fp32", "bf16")]


def norm(*values):
    return float(torch.nn.utils.get_total_norm(values))


def computed(model, share, device, precision="fp32"):
    """An update's sums (loss and nll) and gradients by name, in float64 on the CPU."""
    step = Step(model, Training(label_smoothing=0.1), dtype=PRECISIONS[precision], device=device)
    step.passes.scaler = torch.amp.GradScaler(device.type, 1024.0, enabled=precision == "fp16")
    sums, scale = step.forward_backward(share, 1).sums.cpu(), step.passes.scaler.get_scale()
    return sums, {n: p.grad.double().cpu() / scale for n, p in model.named_parameters()}


@pytest.mark.parametrize(("name", "precision", "stance"), CASES)
def test_loss_and_gradients(name, precision, stance, device, make_model, make_share):
    choice = CHOICES[name]
    shares = [make_share(place, choice) for place in (CPU, device)]
    assert shares[0].target_tokens > 1024  # a chunk of the loss
    sums, exact = computed(make_model(torch.float64, **choice), shares[0], CPU)
    with torch.compiler.set_stance(stance):
        given_sums, given = computed(make_model(**choice), shares[1], device, precision)
    tolerance = TOLERANCE[precision]
    torch.testing.assert_close(given_sums, sums, rtol=tolerance, atol=0)
    assert given.keys() == exact.keys()
    apart, whole = {name: given[name] - exact[name] for name in exact}, norm(*exact.values())
    assert norm(*apart.values()) <= tolerance * whole
    for key, value in exact.items():
        # The gradient of some parameters, such as biases of keys, is zero by nature.
        assert norm(apart[key]) <= 4 * tolerance * max(norm(value), whole / 100), key


def searched(model, device, source, beam):
    options = DecodingOptions(beam=beam, max_length_factor=0.1, max_length_constant=4)
    return [each[0] for each in Searcher([model.to(device)], options)(SourceBatch(source, 0))]


@torch.inference_mode()
def read(model, source, found):
    """Log-probabilities of the hypotheses' tokens by one pass over each; those of PAD are 0."""
    target = pad_sequence([torch.tensor(each.tokens) for each in found], True, PAD)
    shifted = torch.cat((torch.full((len(found), 1), EOS), target[:, :-1]), dim=1)
    log_probs = model.output(model(torch.from_numpy(source), shifted)).log_softmax(dim=2)
    return log_probs.gather(2, target[:, :, None])[:, :, 0].masked_fill(target == PAD, 0.0)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", VARIANTS)
def test_searches(name, beam, device, make_model, make_share):
    exact = make_model(torch.float64, **VARIANTS[name])
    source = make_share(CPU).batches[0][1].source[:8].numpy()
    expected = searched(exact, CPU, source, beam)
    given = searched(make_model(**VARIANTS[name]), device, source, beam)
    assert [each.tokens for each in given] == [each.tokens for each in expected]
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        found = searched(make_model(dtype, **VARIANTS[name]), device, source, beam)
        each = pad_sequence([torch.tensor(one.each) for one in found], True)
        by_reading = read(exact, source, found).float()
        # A log-probability is a difference of logits, which are rounded by their own size.
        largest = tolerance * max(1.0, -float(by_reading.min()) / 4)
        torch.testing.assert_close(each, by_reading, rtol=tolerance, atol=largest)
