"""A search on a pretended GPU: no mixed devices or dtypes, and one wait in a step."""

from unittest import mock

import pytest
import torch
from model.choices import VARIANTS

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.decoding.searcher import Searcher, SourceBatch
from nmtdeep.model.build import build

from .pretend import Recorder, pretended
from .torch_tables import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
TYPES, STEPS = 64, 3
AT_THE_START = {
    ("decoding/searcher.py:_search", "copy from the host"),  # the source
    ("decoding/searcher.py:_constraints", "copy from the host"),
    ("decoding/search.py:beam", "number read by the host"),  # limits
}
EACH_STEP = ("decoding/search.py:arrived", "event")  # the best continuations, one step late
# Sentences that stay when others leave, which a GPU is not made to wait for.
IN_A_BEAM = {*AT_THE_START, EACH_STEP, ("decoding/search.py:beam", "copy from the host")}
IN_SAMPLING = {
    ("decoding/searcher.py:_search", "copy from the host"),
    ("decoding/searcher.py:_constraints", "copy from the host"),
    ("decoding/sampling.py:sample", "number read by the host"),  # limits; what was drawn
    ("decoding/sampling.py:sample", "copy from the host"),  # sentences that are not done
}


def recorded(model, dtype, *, answer=STEPS, prefix=0, **options):
    """A search of 3 sentences; `answer` is what the host reads, as their limits too.

    Args:
        prefix: forced tokens of each.
    """
    forced = [[6] * prefix] * 3 if prefix else None
    torch.set_default_dtype(dtype)
    try:
        with pretended(), torch.device("cuda"), mock.patch("torch.cuda.set_device"):
            network = build(model, source_types=TYPES, target_types=TYPES)
            searcher = Searcher([network], DecodingOptions(**options))
            torch.set_default_dtype(torch.float32)
            with Recorder(answer=answer) as recorder:
                searcher(SourceBatch([[5] * 7] * 3, 0, forced))
    finally:
        torch.set_default_dtype(torch.float32)
    return recorder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(VARIANTS)), ids=list(VARIANTS).__getitem__)
def test_every_variant_is_searched(tiny_config, number):
    choice = list(VARIANTS.values())[number]
    dtype = (torch.bfloat16, torch.float16, torch.float32)[number // 2 % 3]
    recorder = recorded(tiny_config(**choice), dtype)
    assert set(recorder.waits) <= IN_A_BEAM


def test_sampling_is_searched(tiny_config):
    recorder = recorded(tiny_config(), torch.bfloat16, answer=2, sampling=True, top_p=0.9)
    assert set(recorder.waits) <= IN_SAMPLING


@pytest.mark.parametrize(("beam", "most"), [(4, 104), (1, 102)])  # 2026-11-28: 101 and 99
def test_a_step_waits_once_and_its_launches_stay_in_their_budget(tiny_config, beam, most):
    """6+6 layers; the difference between searches of STEPS and of twice as many steps."""
    model = tiny_config(depth=6)
    short, long = (recorded(model, torch.float32, answer=n, beam=beam) for n in (STEPS, 2 * STEPS))
    assert long.launches.total() - short.launches.total() <= most * STEPS
    assert long.waits[EACH_STEP] - short.waits[EACH_STEP] == STEPS
    assert set(long.waits) <= IN_A_BEAM
    assert all(long.waits[place] == short.waits[place] for place in IN_A_BEAM - {EACH_STEP})


def test_a_prefix_adds_a_copy_and_a_few_launches(tiny_config):
    free, forced = (
        recorded(tiny_config(depth=6), torch.float32, beam=4, prefix=length) for length in (0, 2)
    )
    assert set(forced.waits) <= IN_A_BEAM
    assert forced.waits.total() == free.waits.total() + 1
    assert forced.launches.total() <= free.launches.total() + 30  # 2026-11-23: 17
