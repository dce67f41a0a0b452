"""The kept seeds, and hypothesis' variations of them, through every fuzzed reader."""

import importlib
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

FUZZ = Path(__file__).parents[2] / "fuzz"


sys.path.insert(0, str(FUZZ))
TARGETS = importlib.import_module("targets").TARGETS
SEEDS = {
    name: [path.read_bytes() for path in sorted((FUZZ / "seeds" / name).iterdir())]
    for name in TARGETS
}


@pytest.mark.parametrize("name", TARGETS)
def test_kept_seeds_break_no_promise(name):
    assert SEEDS[name]
    for seed in SEEDS[name]:
        TARGETS[name](seed)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds_break_no_promise(name):
    @given(st.data())
    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @example(None)
    def run(data):
        if data is None:
            TARGETS[name](b"")
            return
        seed = data.draw(st.sampled_from(SEEDS[name]))
        first = data.draw(st.integers(0, len(seed)))
        last = data.draw(st.integers(first, min(len(seed), first + 8)))
        TARGETS[name](seed[:first] + data.draw(st.binary(max_size=8)) + seed[last:])

    run()


def test_seeds_belong_to_targets():
    assert {path.name for path in (FUZZ / "seeds").iterdir()} == set(TARGETS)
