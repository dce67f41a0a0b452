"""Searches with weights of 16 or 8 bits return the log-probabilities of the whole model.

A number of p bits of precision is off by up to u = 2^-p of itself: 2^-8 in bf16, 2^-11 in fp16;
int8 rounds inputs to 255 steps over their range, and weights too, about 2^-9 of the range each;
without VNNI inputs have 127 steps. Where bf16 is emulated, a number also depends on the shape of
the product that it comes from.
"""

import math
from copy import deepcopy
from typing import Any, NamedTuple

import pytest
import torch
from model.choices import DECODERS, SLOTS, VARIANTS
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.searcher import Searcher, SourceBatch
from nmtdeep.devices import native_bf16
from nmtdeep.model.kernels.cpu_prepacked_linear import Kind, PackedLinear, QuantizedLinear, pack
from nmtdeep.text.vocabulary import EOS, PAD

SOURCE = torch.tensor([[5, 9, 4, 7, 1], [8, 3, 1, PAD, PAD]])
SETTINGS = DecodingOptions(beam=2, n_best=2, max_length_factor=0.25, max_length_constant=2)


class Numbers(NamedTuple):
    """A kind of weights.

    Attributes:
        unit: how far a rounded number may be off, as a share of itself.
        steady: whether a token's numbers do not depend on what else is computed with it.
    """

    dtype: torch.dtype
    packed: Kind | None
    unit: float
    steady: bool = True


NATIVE = native_bf16(torch.device("cpu"))
VNNI = getattr(torch.cpu, "_is_vnni_supported", lambda: False)()  # older torches lack it
NUMBERS = {
    "fp32": Numbers(torch.float32, PackedLinear, 2**-24),
    "bf16": Numbers(torch.bfloat16, PackedLinear, 2**-8, steady=NATIVE),
    "fp16": Numbers(torch.float16, None, 2**-11),
    "int8": Numbers(torch.float32, QuantizedLinear, 2**-8 if VNNI else 2**-7, steady=False),
}
HARD: list[dict[str, Any]] = [
    {"sublayers": sublayers, "positions": positions}
    for sublayers in DECODERS[3:]
    for positions in SLOTS["positions"][1:]
]


def in_numbers(model, numbers):
    """The model with such weights; skips where this machine has none."""
    if numbers.packed is QuantizedLinear and not QuantizedLinear.supports(model.output.weight):
        pytest.skip("no int8 with this torch or processor")
    model.to(numbers.dtype)
    if numbers.packed is not None:
        pack(model, numbers.packed)
    return model


class Read(NamedTuple):
    """For each token of all hypotheses: its log-probability, and the largest |logit|, `(n,)`."""

    log_probs: Tensor
    largest: Tensor


@torch.inference_mode()
def read_back(models, results):
    """Teacher forcing of all hypotheses at once; models' probabilities are averaged."""
    flat = [torch.tensor(item.tokens) for each in results for item in each]
    target = pad_sequence(flat, batch_first=True, padding_value=PAD)
    source = SOURCE.repeat_interleave(len(flat) // len(SOURCE), dim=0)
    prefix = torch.cat((torch.full((len(flat), 1), EOS), target[:, :-1]), dim=1)
    logits = torch.stack([model.output(model(source, prefix)).float() for model in models])
    log_probs = logits.log_softmax(dim=3).logsumexp(dim=0) - math.log(len(models))
    chosen = log_probs.gather(2, target[:, :, None])[:, :, 0]
    return Read(chosen[target != PAD], logits.abs().amax(dim=(0, 3))[target != PAD])


def reported(results):
    """Log-probabilities of the tokens by the search."""
    return torch.tensor([number for each in results for item in each for number in item.each])


def search(models, settings):
    return Searcher(models, settings)(SourceBatch(SOURCE.numpy(), 0))


def assert_close(one, other, share):
    """Logits off by a share of the largest move log-probabilities by twice as much at most."""
    assert ((one - other.log_probs).abs() <= 2 * share * other.largest + 1e-5).all()


@pytest.mark.parametrize("name", ["bf16", "int8"])
@pytest.mark.parametrize("choice", VARIANTS)
def test_log_probabilities_of_a_search_equal_those_of_the_model(choice, name, tiny_model):
    numbers = NUMBERS[name]
    exact = tiny_model(seed=1, dtype=torch.float32, **VARIANTS[choice])
    model = in_numbers(deepcopy(exact), numbers)
    results = search([model], SETTINGS)
    if numbers.steady:  # each number is rounded alike, but for sums in another order
        assert_close(reported(results), read_back([model], results), numbers.unit)
    # A sublayer rounds its output and the residual sum.
    sublayers = sum(len(layer.sublayers) for layer in (*exact.encoder, *exact.decoder))
    assert_close(reported(results), read_back([exact], results), 2 * sublayers * numbers.unit)


GREEDY, SAMPLING = (
    SETTINGS.model_copy(update=changes)
    for changes in ({"beam": 1, "n_best": 1}, {"sampling": True})
)


@pytest.mark.parametrize("number", range(len(HARD)))
def test_log_probabilities_of_an_ensemble_equal_those_of_its_models(number, tiny_model):
    """Each kind of numbers in turn, so that each sublayer has all of them."""
    numbers = NUMBERS[("fp32", "bf16", "fp16")[number % 3]]
    models = [
        in_numbers(tiny_model(seed=seed, dtype=torch.float32, **HARD[number]), numbers)
        for seed in (1, 2)
    ]
    results = search(models, (GREEDY, SAMPLING)[(number + number // 4) % 2])
    assert_close(reported(results), read_back(models, results), numbers.unit)
