"""Updates that are CUDA graphs equal those whose kernels are launched one by one."""

from itertools import product

import pytest
import torch

from nmtdeep.config.training import Training
from nmtdeep.data.batch import RankBatches
from nmtdeep.training.setup import PRECISIONS
from nmtdeep.training.step import Step
from tests.training.test_graphs import filled_shares

CHOICES = {
    "base": {},
    "DLCL": {"combinations": ("dlcl", "dlcl")},
    "merged": {"sublayers": ["merged_attention", "feed_forward"]},
    "rotary": {"positions": "rotary"},
}

OPTIMIZERS = ("adam", "muon")


def trained(model, shares, device, precision, records, optimizer, forgets=0):
    settings = {"clip_norm": 1.0, "optimizer": optimizer, "record_gradients": True}
    step = Step(
        model, Training.model_validate(settings), dtype=PRECISIONS[precision], device=device
    )
    step.passes._records = records
    results = []
    for number, share in enumerate(shares, start=1):
        if number == forgets:
            step.forget()
        results.append(step.update(share, number, 1e-3))
    return results, [each.detach().cpu() for each in model.parameters()], step


CASES = [(*each, "force_eager") for each in product(CHOICES, ("fp32", "bf16", "fp16"), OPTIMIZERS)]
CASES += [(name, "bf16", "adam", "default") for name in CHOICES]


@pytest.mark.parametrize(("name", "precision", "optimizer", "stance"), CASES)
def test_updates(name, precision, optimizer, stance, device, tiny_model, tiny_run):
    if device.type == "cpu":
        pytest.skip("only a GPU has graphs")
    shares = [
        RankBatches.single([batch.to(device) for _, batch in share.batches])
        for share in filled_shares(tiny_run, 12)
    ]
    types = len(tiny_run.pipeline.source.vocabulary)
    size = {"width": 64, "feed_forward": 128, "types": types, "dropout": 0.1}
    found = []
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.compiler.set_stance(stance):
            for records in (True, False):
                model = tiny_model(seed=1, dtype=torch.float32, **size, **CHOICES[name])
                found.append(trained(model, shares, device, precision, records, optimizer))
    finally:
        torch.use_deterministic_algorithms(False)
    (graphed, weights, step), (eager, expected, other) = found
    # At least the batches after the first of each size; Adam's steps too, but for a loss scale.
    assert step.passes.graphs.replays >= 11 and not other.passes.graphs.calls
    assert graphed == eager
    assert all(map(torch.equal, weights, expected))


def test_graphs_are_recorded_anew_after_they_were_freed(device, tiny_model, tiny_run):
    if device.type == "cpu":
        pytest.skip("only a GPU has graphs")
    shares = [
        RankBatches.single([batch.to(device) for _, batch in share.batches])
        for share in filled_shares(tiny_run, 16)
    ]
    found = []
    for forgets in (0, 8):
        model = tiny_model(
            seed=1, dtype=torch.float32, types=len(tiny_run.pipeline.source.vocabulary)
        )
        found.append(trained(model, shares, device, "fp32", True, "adam", forgets))
    (whole, expected, step), (freed, weights, other) = found
    assert 0 < other.passes.graphs.replays < step.passes.graphs.replays
    assert [each.loss for each in freed] == pytest.approx([each.loss for each in whole], rel=1e-5)
    torch.testing.assert_close(weights, expected, rtol=0, atol=1e-4)
