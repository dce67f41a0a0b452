"""An update on a pretended GPU: no mixed devices or dtypes, named waits, a budget of launches."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from model.choices import VARIANTS

from nmtdeep.config.recipe import Recipe
from nmtdeep.config.training import Training
from nmtdeep.data.batch import Batch, RankBatches
from nmtdeep.data.capacity import Capacity
from nmtdeep.model.build import build
from nmtdeep.packing import Packing
from nmtdeep.training.graphs import Graphs
from nmtdeep.training.setup import PRECISIONS
from nmtdeep.training.step import Step

from .pretend import Recorder, pretended
from .torch_tables import missing

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
TYPES, SENTENCES, LENGTH = 64, 4, 7
# Gradient norm and sums, which are read together after the step.
AT_THE_END = {("training/step.py:read", "event")}


def batch(*, packed):
    """Sentences of one length, in a row or with two cells of padding."""
    cells = SENTENCES * LENGTH
    shape = (1, cells) if packed else (SENTENCES, LENGTH)
    ids = [torch.randint(3, TYPES, shape, device="cuda") for _ in range(3)]
    if not packed:
        return Batch(*ids, cells - 2, padded_tokens=2 * cells, real_tokens=2 * (cells - 2))
    offsets = torch.arange(0, cells + 1, LENGTH, dtype=torch.int32, device="cuda")
    row = Packing(offsets, torch.arange(cells, device="cuda"), LENGTH)
    return Batch(*ids, cells, padded_tokens=2 * cells, real_tokens=2 * cells, packing=(row, row))


def recorded(model, precision, **settings):
    """The second update, which has an optimizer with moments."""
    training = Training.model_validate({"clip_norm": 1.0, **settings})
    packed = Recipe(model=model, training=training).uses_packing("cuda")
    with pretended():
        with torch.device("cuda"):
            network = build(model, source_types=TYPES, target_types=TYPES)
        step = Step(network, training, dtype=PRECISIONS[precision])
        share = RankBatches.single([batch(packed=packed)])
        with Recorder() as recorder:
            step.update(share, 1, 1e-4)
            recorder.forget()
            step.update(share, 2, 1e-4)
    return recorder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(VARIANTS)), ids=list(VARIANTS).__getitem__)
def test_every_variant_trains(tiny_config, number):
    choice = list(VARIANTS.values())[number]
    precision = ("bf16", "fp16", "fp32")[number // 2 % 3]
    recorder = recorded(tiny_config(**choice, width=64, dropout=0.1), precision)
    scale = {("training/step.py:apply", "number read by the host")}
    assert set(recorder.waits) == AT_THE_END | (scale if precision == "fp16" else set())


def test_an_update_is_launched_before_the_host_waits_for_the_one_before(tiny_config):
    with pretended():
        with torch.device("cuda"):
            network = build(tiny_config(), source_types=TYPES, target_types=TYPES)
        step = Step(network, Training(), dtype=torch.bfloat16)
        share = RankBatches.single([batch(packed=True)])
        with Recorder() as recorder:
            step.update(share, 1, 1e-4)  # creates moments and tables
            recorder.forget()
            wait = step.apply(step.forward_backward(share, 2), 1e-4)
            step.apply(step.forward_backward(share, 3), 1e-4)
            assert not recorder.waits
            wait()
            assert set(recorder.waits) == AT_THE_END


def test_muon_skips_a_bad_update_on_the_device(tiny_config):
    assert set(recorded(tiny_config(), "bf16", optimizer="muon").waits) == AT_THE_END


def test_hints_of_the_compiler_are_not_shown(tiny_config, recwarn):
    recorded(tiny_config(), "bf16")
    for module in ("torch._inductor.lowering", "other"):
        warnings.warn_explicit("Online softmax is disabled", UserWarning, "", 1, module=module)
    assert [each.filename for each in recwarn if "softmax" in str(each.message)] == [""]


def test_launches_of_an_update_stay_in_their_budget(tiny_config):
    recorder = recorded(tiny_config(width=64, depth=6, dropout=0.1), "bf16")
    assert recorder.launches.total() <= 1140  # 6+6 layers, one row; 2026-11-23: 1,125


def test_few_launches_of_a_replayed_update_are_outside_its_graphs(tiny_config, monkeypatch):
    """Graphs are no launches here: what is counted are copies, the rate, sums and the result."""
    monkeypatch.setattr(Graphs, "beside", lambda _, work: work())
    monkeypatch.setattr(Graphs, "_recorded", lambda *_: lambda: None)
    capacity = Capacity((28, 28), SENTENCES, (LENGTH, LENGTH))
    with pretended():
        with torch.device("cuda"):
            network = build(tiny_config(width=64, depth=6), source_types=TYPES, target_types=TYPES)
        step = Step(network, Training(clip_norm=1.0), dtype=torch.bfloat16)
        filled = replace(batch(packed=True), capacity=capacity, indices=np.arange(SENTENCES))
        share = RankBatches.single([filled])
        with Recorder() as recorder:
            for number in range(1, 4):  # as it is, then recorded; the step one update later
                step.update(share, number, 1e-4)
            recorder.forget()
            step.update(share, 4, 1e-4)
    assert step.passes.graphs.replays == 3 + 2  # of batches and of steps
    assert recorder.launches.total() <= 30, recorder.launches
    assert set(recorder.waits) == AT_THE_END
