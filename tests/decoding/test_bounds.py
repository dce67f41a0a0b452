"""Every value that an option for translating may have gives finite translations, one a line."""

import math
import re
from decimal import Decimal

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nmtdeep import checkpoint
from nmtdeep.config.decoding import OF_SAMPLING, OF_SEARCH, DecodingOptions, decoding_options
from nmtdeep.decoding.search import length_penalty
from nmtdeep.decoding.translator import Translator
from nmtdeep.errors import UserError
from nmtdeep.text.vocabulary import EOS

from .checkpoints import saved

LINES = ["Move.", "", "The flow meter units to send.", "日本語 🙂"]
# The greatest value of each option, and the least where it is not 0.
GREATEST = {
    "lenpen": 10.0,
    "max_length_factor": 1000.0,
    "max_length_constant": 100_000,
    "temperature": 1000.0,
    "top_p": 1.0,
    "beam": 1000,
    "n_best": 1000,
    "threads": 1024,
    "processes": 1024,
}


@pytest.mark.parametrize("name", GREATEST)
def test_a_value_beyond_its_bound_is_refused_in_one_line(name):
    most = GREATEST[name]
    sampling = {} if name in OF_SEARCH else {"sampling": True}
    assert getattr(decoding_options({name: most} | sampling), name) == most
    beyond = [most + 1] if isinstance(most, int) else [math.nextafter(most, math.inf), 1e300]
    for value in (*beyond, -1, *([1e-300] if name == "temperature" else [])):
        with pytest.raises(UserError, match=rf"^{name}: must be .*, not {re.escape(repr(value))}$"):
            decoding_options({name: value})


@pytest.mark.parametrize("alpha", [0.0, 5e-324, 10.0])
@pytest.mark.parametrize("length", [1, 10**9])
def test_penalties_are_finite_and_right(alpha, length):
    for form, base in (("length", Decimal(length)), ("gnmt", Decimal(5 + length) / 6)):
        found = length_penalty(form, alpha)(length)
        assert found == pytest.approx(float(base ** Decimal(alpha)), rel=1e-12)
        assert -1e-3 / found < 0, "the least log-probabilities still differ"


@pytest.fixture(scope="module")
def brief(tiny_run, tiny_config, tmp_path_factory):
    """A checkpoint whose sentences end soon, however long they may be."""
    config = tiny_config(embeddings={"output_bias": True})
    path = tmp_path_factory.mktemp("brief") / "checkpoint_20"
    return saved(tiny_run, path, config, lambda model: model.output.bias[EOS].fill_(12.0))


def numbers(least, most):
    """Both ends more often than by chance."""
    return st.one_of(st.sampled_from([least, most]), st.floats(least, most))


# Each list: the least, the greatest, and more.
CHOICES = {
    "beam": [1, 1000, 2, 7],
    "lenpen_form": ["gnmt", "length", "none"],
    "max_length_constant": [1, 100_000, 3],
    "max_source_tokens": [1, 10**15, 3],
    "allow_unk": [False, True],
    "n_best": [1, 3],
    "prefix_column": [False, True],
    "long_lines": ["split", "truncate"],
    "sampling": [False, True],
    "top_k": [0, 10**15, 1, 5],
    "seed": [0, 10**15],
    "precision": ["fp32", "bf16"],
    "max_tokens": [1, 10**15, 50],
}
FLOATS = {
    "lenpen": numbers(0, GREATEST["lenpen"]),
    "max_length_factor": numbers(0, GREATEST["max_length_factor"]),
    "temperature": numbers(0.001, 1000),
    "top_p": numbers(5e-324, 1),
}
SEARCHES = st.fixed_dictionaries(
    {}, optional=FLOATS | {name: st.sampled_from(each) for name, each in CHOICES.items()}
)


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(drawn=SEARCHES)
def test_any_options_translate_every_line(drawn, brief):
    # Refused in one line.
    idle = OF_SEARCH if drawn.get("sampling") else OF_SAMPLING
    drawn = {name: value for name, value in drawn.items() if name not in idle}
    if drawn.get("beam", 10) < drawn.get("n_best", 1):
        del drawn["beam"]
    options = decoding_options(drawn | {"device": "cpu"})
    found = list(Translator.load([brief], options).translate(LINES))
    assert [each.source for each in found] == LINES
    for each in found:
        assert 1 <= len(each.candidates) <= options.n_best
        for one in each.candidates:
            assert math.isfinite(one.log_prob) and math.isfinite(one.score)
            assert one.text or not each.source or drawn.get("max_length_factor", 1) * 2 < 1


def test_the_longest_translations_are_as_long_as_the_options_say(brief):
    """A model that never ends by itself, between 0 and 1 times the source plus 4 or 5."""
    model = checkpoint.load_model(brief)
    with torch.no_grad():
        model.model.output.bias[EOS] = -50.0
    for factor, constant in ((0.0, 5), (1.0, 4), (100.0, 0)):
        how = {"max_length_factor": factor, "max_length_constant": constant, "lenpen": 10.0}
        translator = Translator.of([model], DecodingOptions(device="cpu", beam=1, **how))
        (each,) = translator.translate(["M"])
        source = len(each.subwords) + 1
        assert len(each.candidates[0].each) == factor * source + constant
