"""A search on a pretended GPU: no mixed devices or dtypes, and one wait in a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from nmtdeep.config.decoding import DecodingOptions
from nmtdeep.config.model import Model
from nmtdeep.decoding.searcher import Searcher, SourceBatch
from nmtdeep.model.build import build

from .pretend import Recorder, pretended
from .torch_tables import missing
from .variants import VARIANTS

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
TYPES, STEPS = 64, 4
IN_A_BEAM = {
    ("decoding/searcher.py:__call__", "copy from the host"),  # the source
    ("decoding/search.py:beam", "copy from the host"),  # limits; sentences that are not done
    ("decoding/search.py:beam", "number read by the host"),  # which sentences are done
    ("decoding/search.py:forbid", "copy from the host"),  # sentences at their limits
    ("decoding/search.py:_read_out", "copy to the host"),  # hypotheses, after the last step
}
IN_SAMPLING = {
    ("decoding/searcher.py:__call__", "copy from the host"),
    ("decoding/search.py:forbid", "copy from the host"),
    ("decoding/sampling.py:sample", "number read by the host"),  # what was drawn
    ("decoding/sampling.py:sample", "nonzero"),  # sentences that are not done
}


def recorded(model: Model, dtype: torch.dtype, *, answer: int = STEPS, **options: Any) -> Recorder:
    """A search of 3 sentences; `answer` is what the host reads, as their limits too."""
    torch.set_default_dtype(dtype)
    try:
        with pretended(), torch.device("cuda"):
            network = build(model, source_types=TYPES, target_types=TYPES)
            searcher = Searcher([network], DecodingOptions(**options))
            torch.set_default_dtype(torch.float32)
            with Recorder(answer=answer) as recorder:
                searcher(SourceBatch(np.full((3, 7), 5), 0))
    finally:
        torch.set_default_dtype(torch.float32)
    return recorder


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_searched(
    tiny_config: Callable[..., Model], name: str, dtype: torch.dtype
) -> None:
    recorder = recorded(tiny_config(**VARIANTS[name]), dtype)
    assert set(recorder.waits) <= IN_A_BEAM


def test_sampling_is_searched(tiny_config: Callable[..., Model]) -> None:
    recorder = recorded(tiny_config(), torch.bfloat16, answer=2, sampling=True, top_p=0.9)
    assert set(recorder.waits) <= IN_SAMPLING


def test_launches_of_a_search_stay_in_their_budget(tiny_config: Callable[..., Model]) -> None:
    recorder = recorded(tiny_config(depth=6), torch.float32)
    assert recorder.launches.total() <= 1150  # 6+6 layers, 4 steps; 2026-11-23: 1,137
